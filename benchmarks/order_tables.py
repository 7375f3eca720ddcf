"""Files and tables of orders.py: clusters and plans as text, prices that `dnnc
simulate` gives them, and what is said about their order."""
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JOBS = 2


def cluster(device, *levels):
    lines = "".join(f"  level {level}\n" for level in levels)
    return f"cluster orders {{\n  device = {device}\n{lines}}}\n"


def plan(mesh, *lines):
    body = "".join(f"  {line}\n" for line in lines)
    return f"mesh {{ {mesh} }}\nplan {{\n{body}}}\n"


def nvlink(link):
    return f"node {{ count = 8; link = {link}; latency = 3.4us; kind = switch }}"


def ethernet(count, rate):
    return (f"network {{ count = {count}; link = {rate}; latency = 30us; "
            "kind = switch }")


class Orders:
    """Asks for prices, prints them and judges their order.  A plan of the folder
    `plans` stands in for the written one of that name."""

    def __init__(self, dnnc, folder, plans=None):
        self.dnnc, self.folder = os.path.abspath(dnnc), folder
        self.plans = plans and os.path.abspath(plans)
        self.models = os.path.relpath(os.path.join(ROOT, "models"), folder)
        self.are_good = True

    def write(self, files):
        for name, text in files.items():
            with open(os.path.join(self.folder, name), "w",
                      encoding="utf-8") as file:
                file.write(text)

    def plan_path(self, name):
        found = self.plans and os.path.join(self.plans, name + ".plan")
        return found if found and os.path.exists(found) else name + ".plan"

    def ask(self, question):
        """(cluster, plan, model and further words) to the parsed reply."""
        where, how, model = question
        words = ["simulate", *shlex.split(f"{self.models}/{model}"),
                 "--cluster", where + ".cluster", "--plan",
                 self.plan_path(how)]
        done = subprocess.run([self.dnnc, *words, "--json"], text=True,
                              cwd=self.folder, capture_output=True,
                              check=False)
        if done.returncode:
            sys.exit(f"dnnc {shlex.join(words)}\n{done.stderr}")
        found = json.loads(done.stdout)
        found["waits"] = found["ranks"][0]["exposed_comm_s"] / found["step_s"]
        found["command"] = f"dnnc {shlex.join(words)}"
        return found

    def search(self, where, ranks, model, name):
        """Writes the plan that `--search stages` finds; whether there is one."""
        words = ["plan", *shlex.split(f"{self.models}/{model}"), "--cluster",
                 where + ".cluster", "--ranks", str(ranks), "--search",
                 "stages", "--effort", "100", "--quiet", "-o", name + ".plan"]
        done = subprocess.run([self.dnnc, *words], text=True, cwd=self.folder,
                              capture_output=True, check=False)
        if done.returncode not in (0, 2):
            sys.exit(f"dnnc {shlex.join(words)}\n{done.stderr}")
        return done.returncode == 0

    def text(self, name):
        with open(os.path.join(self.folder, self.plan_path(name)),
                  encoding="utf-8") as file:
            return file.read()

    def ask_all(self, questions):
        with ThreadPoolExecutor(JOBS) as pool:
            return list(pool.map(self.ask, questions))

    def table(self, title, questions):
        found = self.ask_all(questions)
        print(f"\n{title}\n{'step':>11} {'waits':>7} {'memory':>9}  command")
        for price in found:
            peak = max(r["peak_bytes"] for r in price["ranks"]) / 1e9
            print(f"{1e3 * price['step_s']:8.1f} ms {100 * price['waits']:5.1f} %"
                  f" {peak:6.1f} GB{' ' if price['fits'] else '!'} "
                  f"{price['command']}")
        return found

    def judge(self, what, is_so, known=None):
        """`known` says why an order is not the published one: that is no error."""
        if not is_so and known:
            print(f"differs: {what}; {known}")
            return
        print(f"{'holds' if is_so else 'DOES NOT HOLD'}: {what}")
        self.are_good &= bool(is_so)
