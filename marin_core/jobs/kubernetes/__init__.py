"""Jobs as JobSets and Indexed Jobs on a Kubernetes cluster."""
