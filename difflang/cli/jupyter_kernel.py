"""The Jupyter kernel: a session that answers Jupyter's messages. Imported by `difflang kernel`, needs ipykernel."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

from difflang.base.crash_report import report_crash
from difflang.base.diagnostics import DifflangError
from difflang.base.errors import classify_error
from difflang.cli.repl.cell_session import CellSession, MimeBundle
from difflang.cli.repl.session import CompilerLoader
from difflang.host.progress_bar import DISPLAYS
from difflang.syntax.repl_input import is_command, is_complete, next_indentation, strip_prompts
from difflang.tools.completion_candidates import complete

Reply = dict[str, Any]
OK_REPLY: Reply = {"status": "ok", "payload": [], "user_expressions": {}}


class KernelSession(CellSession, eq=False, kw_only=True):
    """The session of a kernel. The value of a cell is its result."""

    kernel: DifflangKernel

    def show_result(self, text: str) -> None:
        data = {"text/plain": text}
        self.kernel.publish_message(
            "execute_result", execution_count=self.kernel.execution_count, data=data, metadata={}
        )


class DifflangKernel(Kernel):
    """Answers a front end: cells, completion, inspection of names."""

    implementation = "difflang"
    implementation_version = version("difflang")
    banner = "difflang: `:help` lists the commands."
    language_info = {  # noqa: RUF012 - a trait of the class it derives from
        "name": "difflang",
        "version": implementation_version,
        "mimetype": "text/x-difflang",
        "file_extension": ".dfl",
        "pygments_lexer": "difflang",
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.cells = KernelSession(
            loader=CompilerLoader("xla", None, 0, "f32", (), self.echo), publish=self.display, kernel=self
        )
        self.silent = False
        DISPLAYS[:] = [self.display_named]
        # Import the compiler while the front end connects.
        self.cells.loader.start()

    def publish_message(self, kind: str, **content: Any) -> None:
        """Send a message to the front end."""
        if not self.silent:
            self.send_response(self.iopub_socket, kind, content)

    def echo(self, text: str, *, err: bool = False) -> None:
        self.publish_message("stream", name="stderr" if err else "stdout", text=f"{text}\n")

    def display(self, data: MimeBundle) -> None:
        self.publish_message("display_data", data=data, metadata={})

    def display_named(self, data: MimeBundle, name: str, update: bool) -> None:
        """Display an object under a name, or update what was displayed under it."""
        kind = "update_display_data" if update else "display_data"
        self.publish_message(kind, data=data, metadata={}, transient={"display_id": name})

    async def do_execute(self, code: str, silent: bool, *_: Any, **__: Any) -> Reply:
        """Run a cell; an error is reported and leaves the session unchanged."""
        self.silent = silent
        count = {"execution_count": self.execution_count}
        try:
            # People paste transcripts into cells.
            if self.cells.run_cell(strip_prompts(code), f"In[{self.execution_count}]"):
                return OK_REPLY | count
            return OK_REPLY | count | {"payload": [{"source": "ask_exit", "keepkernel": False}]}
        except DifflangError as error:
            self.cells.last_code = error.diagnostics[0].code
            found = classify_error(error)
            failure = type(found).__name__, error.diagnostics[0].message, error.render(True)
        except KeyboardInterrupt:
            self.cells.interrupted = True
            failure = "KeyboardInterrupt", "interrupted", "interrupted"
        except Exception as error:  # noqa: BLE001 - an internal error must not end the session
            failure = type(error).__name__, str(error), report_crash(error)
        name, message, shown = failure
        content = {"ename": name, "evalue": message, "traceback": shown.split("\n")}
        self.publish_message("error", **content)
        return {"status": "error", **content, **count}

    async def do_complete(self, code: str, cursor_pos: int) -> Reply:
        """Names and fields for the word before the cursor, with their types."""
        found = complete(code[:cursor_pos], self.cells.completion_names())
        start = found[0].start if found else cursor_pos
        types = [{"start": c.start, "end": cursor_pos, "text": c.word, "type": c.detail} for c in found]
        return {
            "status": "ok",
            "matches": [c.word for c in found],
            "cursor_start": start,
            "cursor_end": cursor_pos,
            "metadata": {"_jupyter_types_experimental": types},
        }

    async def do_is_complete(self, code: str) -> Reply:
        if is_command(code) or is_complete(strip_prompts(code)):
            return {"status": "complete"}
        return {"status": "incomplete", "indent": next_indentation(code.rsplit("\n", 1)[-1])}

    async def do_inspect(self, code: str, cursor_pos: int, *_: Any, **__: Any) -> Reply:
        """The meaning of the name at the cursor."""
        from difflang.tools.session_queries import describe_symbol

        name = name_at(code, cursor_pos)
        found = describe_symbol(self.cells.session, name) if name else None
        data = {"text/plain": found} if found is not None else {}
        return {"status": "ok", "found": found is not None, "data": data, "metadata": {}}


def name_at(code: str, offset: int) -> str:
    """The name, possibly qualified, that contains or ends at an offset; in a call, the callee."""
    words = [m for m in re.finditer(r"\w+(?:\.\w+)*", code) if m.start() <= offset]
    at = [m[0] for m in words if m.end() >= offset]
    before = code[:offset].rstrip("( ")
    return at[-1] if at else next((m[0] for m in reversed(words) if m.end() == len(before)), "")


def run_kernel(connection_file: str) -> None:
    """Serve until the front end shuts the kernel down."""
    IPKernelApp.launch_instance(argv=["-f", connection_file], kernel_class=DifflangKernel)
