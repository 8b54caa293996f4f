# SPDX-License-Identifier: Apache-2.0

# Runs the tests of rdma-core's pyverbs in a folder, each in a process of its own, and prints a line for each: how it ended, its name, and the
# last line of what it says. Modules of devices that this one is not are left out.
import os
import signal
import sys
import unittest

folder, limit = sys.argv[1], int(sys.argv[2])
chosen = sys.argv[3:]
sys.path.insert(0, folder)
os.chdir(folder)
sys.argv = ["run_tests.py", "--dev", "mcast0", "--gid", "0"]

from args_parser import parser  # noqa: E402

parser.parse_args()
sys.modules["tests"] = type(sys)("tests")
sys.modules["tests"].__path__ = [folder]
sys.modules["tests.args_parser"] = sys.modules["args_parser"]


def each(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from each(t)
        else:
            yield t


def run(test, to):
    os.setpgid(0, 0)
    with os.fdopen(to, "w") as f:
        result = unittest.TestResult()
        try:
            test.run(result)
        except BaseException as e:  # what unittest does not catch
            result.errors.append((test, repr(e)))
        outcome, text = "ok", ""
        for name, found in (("skip", result.skipped), ("fail", result.errors + result.failures)):
            if found:
                outcome, text = name, found[0][1].strip().splitlines()[-1] if found[0][1].strip() else ""
        f.write(outcome + "\t" + text)
    os._exit(0)


def one(test):
    get, put = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(get)
        run(test, put)
    os.close(put)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(pid, signal.SIGKILL))
    signal.alarm(limit)
    with os.fdopen(get) as f:
        said = f.read()
    _, status = os.waitpid(pid, 0)
    left = signal.alarm(0)
    try:
        os.killpg(pid, signal.SIGKILL)  # what the test has started and left
    except ProcessLookupError:
        pass
    if os.WIFSIGNALED(status):
        said = ("late\t" if not left else "signal\t") + str(os.WTERMSIG(status))
    outcome, _, text = said.partition("\t")
    print(outcome or "signal", test.id().removeprefix("tests."), text, sep="\t", flush=True)


names = sorted(f[:-3] for f in os.listdir(folder) if f.startswith("test_") and f.endswith(".py"))
for name in names:
    if "mlx5" in name or "efa" in name or "cuda" in name:
        continue
    for test in each(unittest.defaultTestLoader.loadTestsFromName("tests." + name)):
        if not chosen or any(c in test.id() for c in chosen):
            one(test)
