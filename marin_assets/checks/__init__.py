"""Asset checks, a module for each part of the graph. A check is named by what holds when it passes, is reported by the
asset that it is about, and reads small files and Parquet footers only."""
