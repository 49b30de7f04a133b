"""The worker, killed once the checkpoint in KILLED_AFTER is complete and the evaluation of its step is to begin; with
KILLED_BY by another signal than SIGKILL."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from marin_core.worker import main


def die_after(checkpoint: Path) -> None:
    """Kill this process where the evaluation of that checkpoint's step would begin. It must be a temporary one."""
    import levanter.eval

    evaluate = levanter.eval.eval_model

    def killed(*args: Any, **kwargs: Any) -> Any:
        # It is being saved meanwhile, if it is the step.
        for _ in range(600):
            if (checkpoint / "metadata.json").exists():
                assert json.loads((checkpoint / "metadata.json").read_text())["is_temporary"]
                os.kill(os.getpid(), signal.Signals[os.environ.get("KILLED_BY", "SIGKILL")])
                return evaluate(*args, **kwargs)
            if not checkpoint.exists():
                return evaluate(*args, **kwargs)
            time.sleep(0.05)
        raise TimeoutError(f"{checkpoint} was not completed")

    levanter.eval.eval_model = killed


if __name__ == "__main__":
    die_after(Path(os.environ["KILLED_AFTER"]))
    main()
