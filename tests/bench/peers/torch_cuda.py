#!/usr/bin/env python3
"""Peer: PyTorch on one GPU, eager or with torch.compile: bfloat16 by autocast, channels-last convolutions, fused optimizers."""
import common, os, time  # common first: it starts the clock

MODES = ("eager", "default", "reduce-overhead", "max-autotune")


def extend(ap):
    ap.add_argument("--mode", choices=MODES, default="eager", help="eager, or torch.compile's")
    ap.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    ap.add_argument("--device", default="cuda:0", help="cpu: to try the script")


def main():
    a = common.arguments("torch_cuda", extend)
    import torch
    import workloads as w
    imported = time.perf_counter() - common.START
    w.W.update(w.GPU)
    torch.set_num_threads(a.threads)
    device = torch.device(a.device)
    images = a.workload.startswith("resnet")
    layout = torch.channels_last if images else torch.contiguous_format
    m = w.model(a.workload).to(device, memory_format=layout)
    opt, loss = w.optimizer(a.workload, m.parameters(), fused=True), w.loss_fn(a.workload)
    # As with Gradloom, inputs come from the host at each step.
    data = [[torch.from_numpy(v) for v in batch] for batch in w.batches(a.workload)]
    if device.type == "cuda":
        data = [[v.pin_memory() for v in batch] for batch in data]

    def forward(x, y):
        with torch.autocast(device.type, torch.bfloat16, enabled=a.precision == "bf16"):
            return loss(m(x).float(), y)

    run = forward if a.mode == "eager" else torch.compile(forward, mode=a.mode)

    def step(i):
        x, y = (v.to(device, non_blocking=True) for v in data[i % len(data)])
        opt.zero_grad(set_to_none=True)
        l = run(x.contiguous(memory_format=layout) if images else x, y)
        l.backward()
        opt.step()
        return l.item()

    def memory():
        return dict(device_mib=round(torch.cuda.max_memory_allocated(device) / 2**20, 1)) if device.type == "cuda" else {}

    common.measure(a, f"torch_cuda {a.mode}", w.W[a.workload][2], step, imported, f"torch {torch.__version__}", memory)


if __name__ == "__main__":
    main()
