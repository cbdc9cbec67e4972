"""Read one record from a TOML file, with errors that a person who wrote the file can act on."""

import difflib
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from heapfit.errors import NEAR, HeapfitError, UsageError
from heapfit.files import check_name

AnyRecord = TypeVar("AnyRecord", bound=BaseModel)


def read_record(path: Path, model: type[AnyRecord], **extra: Any) -> AnyRecord:
    """Return the record in the TOML file `path`; `extra` fields are not for the file to set.

    Raises HeapfitError when the file cannot be read, UsageError when there is none or it says
    something wrong.
    """
    check_name(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        kind = UsageError if isinstance(error, FileNotFoundError) else HeapfitError
        raise kind(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    try:
        return model.model_validate({**content, **extra})
    except ValidationError as error:
        # A mistyped key is also a missing one; the typing mistake is the one to tell.
        details = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        raise UsageError(f"{path}: {_explain(details[0], model)}") from error


def _explain(detail: ErrorDetails, model: type[BaseModel]) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(
            str(detail["loc"][-1]), _fields(model, detail["loc"][:-1]), n=1, cutoff=NEAR
        )
        return f"unknown key '{where}'" + (f"; did you mean {near[0]!r}?" if near else "")
    if detail["type"] == "missing":
        return f"the key '{where}' is missing"
    return f"'{where}': {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _fields(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the table at `location` within `model`, found by its annotations."""
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(model.model_fields)
