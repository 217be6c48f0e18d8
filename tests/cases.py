"""Cases of a test that run one after the other, where hundreds of trivial ones would each cost a test of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def each(
    names: str | tuple[str, ...], cases: Iterable[Any], ids: Callable[[Any], object] = repr
) -> Callable[[Test], Test]:
    """Run a test for every case in turn; arguments as of ``pytest.mark.parametrize``. A failure names its case."""
    of_case = (names,) if isinstance(names, str) else names

    def loop(test: Test) -> Test:
        def run(**fixtures: Any) -> None:
            for case in cases:
                values = (case,) if isinstance(names, str) else case
                try:
                    test(**fixtures, **dict(zip(of_case, values, strict=True)))
                except BaseException as error:
                    error.add_note(f"case: {ids(case)}")
                    raise

        parameters = inspect.signature(test).parameters.values()
        run.__signature__ = inspect.Signature([one for one in parameters if one.name not in of_case])  # type: ignore[attr-defined]  # pytest reads it
        run.__name__, run.__module__, run.__doc__ = test.__name__, test.__module__, test.__doc__
        return run

    return loop
