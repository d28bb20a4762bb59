"""`make serve`: a small book in the browser shows an edit without being asked."""

import shutil
import socket
import subprocess
import sys
import time

import chapters as book
import pytest
from test_build import TEXT, small_book  # noqa: F401


@pytest.fixture
def served(small_book, tmp_path):  # noqa: F811
    """The book, built once, and the address at which its own copy of serve.py shows it."""
    status, said = small_book()
    assert status == 0, said
    shutil.copytree(book.BOOK / "_tools", tmp_path / "book" / "_tools", ignore=shutil.ignore_patterns("__pycache__"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(tmp_path / "serve.log", "wb") as log:
        server = subprocess.Popen([sys.executable, "book/_tools/serve.py", str(port)], cwd=tmp_path, stdout=log, stderr=log)
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield small_book, f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.mark.long
def test_an_open_page_shows_an_edit(browser, served):
    small_book, address = served  # noqa: F811
    page, heard = browser.new_page(), []
    page.on("websocket", lambda line: line.on("framereceived", lambda words: heard.append(words)))
    page.goto(f"{address}/book/second.html")
    for _ in range(600):
        if heard:  # the server's hello: from now on it will tell of changes
            break
        page.wait_for_timeout(50)
    page.evaluate("window.before = true")
    small_book.write(TEXT + "\nOne line more.\n")
    page.wait_for_function("!window.before && document.body.innerText.includes('One line more.')", timeout=120_000)
    page.close()
