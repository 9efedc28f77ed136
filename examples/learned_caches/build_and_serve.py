"""Build learned caches for a small network, compare it with and without them, and serve it."""

import shutil
import tempfile
from pathlib import Path

import networks
import numpy as np

import gearshift
from gearshift import caches
from gearshift.serving.operate.child_server import ChildServer
from gearshift.traces.generate import steady

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    for file in ("networks.py", "gearshift.toml"):
        shutil.copy(Path(__file__).parent / file, folder)
    print(f"trained: {networks.make_files(folder):.1%} of unseen images are right")

    images, labels = networks.digits()
    build, test = slice(networks.TRAINED, networks.BUILT), slice(networks.BUILT, None)
    network = gearshift.load_weights(networks.Network(blocks=8, width=16), folder / "digits.safetensors")
    variants = ("FC(32)", "Pool(64,32)")
    built = caches.build(network, images[build], labels[build], accuracy=0.9, variants=variants, out=folder / "caches")
    for entry in built.manifest.chosen:
        print(f"chosen: {entry.variant} after {entry.block}, hits {entry.hit_rate:.0%} ({entry.accuracy:.1%} right)")
    found = caches.evaluate(caches.load(folder / "caches", network), images[test], labels[test])
    print(f"agreement {found.agreement:.1%}, gain {found.gain:.2f}")
    if shortfall := found.shortfall(built.manifest.target):
        print(shortfall)

    gearshift.profile(folder / "gearshift.toml", out=folder / "profile")
    gearshift.write_trace(steady(20, 5), folder / "trace.csv")
    gearshift.plan(folder / "profile", folder / "trace.csv", latency_s=0.5, out=folder / "plan.json")
    with ChildServer(folder / "plan.json") as server, gearshift.Client(server.url, "digits") as client:
        answer = client.infer({"images": images[test][:40]}, outputs=["label", "gearshift_exit_segment"])
    exits = answer.outputs["gearshift_exit_segment"]
    right = (answer.outputs["label"] == labels[test][:40]).mean()
    early = np.mean(exits < len(built.manifest.blocks) - 1)
    print(f"served: {right:.0%} of 40 right, {early:.0%} left before the last segment")
