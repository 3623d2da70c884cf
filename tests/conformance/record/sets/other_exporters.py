"""Models of other frameworks, written by their exporters: Keras with JAX (`KERAS_BACKEND=jax`) or TensorFlow, jax2onnx for Flax and plain
JAX, skl2onnx, and files by hand. Gradients come from the framework itself: a PyTorch module holds its parameters and calls it forward and
backward. Frameworks that are not installed are skipped."""
import importlib.util
import os
import subprocess
import tempfile

import numpy as np
import onnx
import onnx.utils
import torch
import torch.nn as nn

import keras_models
from case import Case, classes, pixels, term
from optimizers import optimizer


class Foreign(nn.Module):
    """A function of another framework, with its parameters held here. `call(parameters, constants, inputs)` returns the output and a
    function that maps its gradient to those of the parameters; all are arrays of one type."""

    def __init__(self, call, parameters: dict, constants: dict):
        super().__init__()
        self.call, self.names, self.fixed = call, list(parameters), list(constants)
        for name, value in parameters.items():
            self.register_parameter(name.replace(".", "_"), nn.Parameter(torch.tensor(np.asarray(value))))
        for name, value in constants.items():
            self.register_buffer(name.replace(".", "_"), torch.tensor(np.asarray(value)))

    def __deepcopy__(self, memo):
        copied = Foreign(self.call, dict(zip(self.names, (p.detach().clone() for p in self.parameters()))), dict(zip(self.fixed, (b.clone() for b in self.buffers()))))
        for p, q in zip(copied.parameters(), self.parameters()):
            p.requires_grad_(q.requires_grad)
        return copied.train(self.training)

    def forward(self, *inputs):
        return _Call.apply(self.call, len(inputs), [b.numpy() for b in self.buffers()], *inputs, *self.parameters())


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(context, call, count, constants, *tensors):
        arrays = [t.detach().numpy() for t in tensors]
        out, context.pull = call(arrays[count:], constants, arrays[:count])
        context.count = count
        return torch.from_numpy(np.array(out))

    @staticmethod
    def backward(context, gradient):
        return None, None, None, *[None] * context.count, *(torch.from_numpy(np.array(g)) for g in context.pull(gradient.numpy()))


def renamed(path, inputs, outputs):
    """Renames the file's inputs and outputs to those of the case, since exporters choose their own names."""
    model = onnx.load(path)
    new = dict(zip([i.name for i in model.graph.input], inputs)) | dict(zip([o.name for o in model.graph.output], outputs))
    for node in model.graph.node:
        node.input[:] = [new.get(i, i) for i in node.input]
        node.output[:] = [new.get(o, o) for o in node.output]
    for value in (*model.graph.input, *model.graph.output):
        value.name = new[value.name]
    onnx.save(model, path)


# Keras


def keras_cases():
    """Each model once through Keras's export with JAX, and once with TensorFlow if `TENSORFLOW_PYTHON` is a Python that has it. Gradients
    are JAX's."""
    import jax
    import keras

    if keras.backend.backend() != "jax":
        raise SystemExit("set KERAS_BACKEND=jax")
    jax.config.update("jax_enable_x64", True)

    def use(dtype):
        keras.config.set_dtype_policy(dtype)
        keras.config.set_floatx(dtype)

    def cases_of(name, make, shape, loss):
        built, compiled = {}, {}

        def model(dtype):
            if dtype not in built:
                keras.utils.set_random_seed(1)
                use(dtype)
                net = built[dtype] = make()
                f = lambda p, c, x: net.stateless_call(p, c, x, training=False)[0]
                compiled[dtype] = jax.jit(f), jax.jit(lambda p, c, x, g: jax.vjp(lambda q: f(q, c, x), p)[1](g)[0])
            return built[dtype]

        def call(parameters, constants, inputs):
            dtype = str(parameters[0].dtype)
            model(dtype)
            out, pull = compiled[dtype]
            return out(parameters, constants, inputs[0]), lambda g: pull(parameters, constants, inputs[0], g)

        def module():
            net = model("float32")
            constants = {v.path.replace("/", "_"): np.asarray(v) for v in net.non_trainable_variables}
            for path, value in constants.items():
                if path.endswith(("moving_mean", "moving_variance")):
                    constants[path] = (np.random.default_rng(3).random(value.shape) * 0.5 + ("variance" in path) * 0.75).astype(np.float32)
            return Foreign(call, {v.path.replace("/", "_"): np.asarray(v) for v in net.trainable_variables}, constants)

        def write_jax(module, batch, path):
            use("float32")
            keras_models.export(model("float32"), shape, [v.detach().numpy() for v in (*module.parameters(), *module.buffers())], path)
            renamed(path, ["x"], ["out"])

        def write_tensorflow(module, batch, path):
            with tempfile.TemporaryDirectory() as folder:
                weights = f"{folder}/weights.npz"
                np.savez(weights, *(v.detach().numpy() for v in (*module.parameters(), *module.buffers())))
                environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KERAS"))}
                subprocess.run([os.environ["TENSORFLOW_PYTHON"], keras_models.__file__, name, weights, path], check=True, capture_output=True, env=environment)
            renamed(path, ["x"], ["out"])

        def batch(b):
            given = classes(shape[0], b, *shape[1]).int() if keras_models.is_tokens(shape) else pixels(b, *shape)
            out = tuple(model("float32").output_shape[1:])
            y = classes(out[-1], b, *out[:-1]) if loss in ("cross_entropy", "tokens") else torch.rand(b, *out) if loss == "bce" else pixels(b, *out)
            return {"x": given, "y": y}

        terms = [term("cross_entropy", class_axis=-1)] if loss == "tokens" else [term(loss)]
        rule = optimizer("momentum", lr=0.05) if len(name) % 2 else optimizer("adam", lr=0.005)
        for backend, write in (("jax", write_jax), ("tensorflow", write_tensorflow)):
            if backend == "jax" or "TENSORFLOW_PYTHON" in os.environ:
                yield Case(f"keras_{backend}_{name}", module, batch, terms, rule, exporter=f"keras, {backend}", mode="eval", dynamic_batch=True, batch_size=4, steps=4, write=write, may_rest=True)

    for name, (make, shape, loss) in keras_models.models().items():
        yield from cases_of(name, make, shape, loss)


# scikit-learn


def sklearn_cases():
    import skl2onnx
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    class Net(nn.Module):
        """What the estimator computes."""

        def __init__(self, made, activation, last):
            super().__init__()
            self.w, self.b = (nn.ParameterList(nn.Parameter(torch.tensor(v, dtype=torch.float32)) for v in values) for values in (made.coefs_, made.intercepts_))
            self.activation, self.last = activation, last

        def forward(self, x):
            for k, (w, b) in enumerate(zip(self.w, self.b)):
                x = x @ w + b
                x = self.activation(x) if k + 1 < len(self.w) else self.last(x)
            return x

    def case(name, estimator, y, activation, last, loss):
        rng = np.random.default_rng(1)
        made = estimator.fit(rng.normal(size=(40, 4)), y(rng))

        def write(module, batch, path):
            made.coefs_, made.intercepts_ = ([p.detach().numpy() for p in values] for values in (module.w, module.b))
            options = {} if isinstance(made, MLPRegressor) else {id(made): {"zipmap": False, "output_class_labels": False}}
            onx = skl2onnx.to_onnx(made, batch["x"].numpy(), options=options)
            if not isinstance(made, MLPRegressor):
                onx = onnx.utils.Extractor(onx).extract_model(["X"], ["probabilities"])
            onnx.save(onx, path)
            renamed(path, ["x"], ["out"])

        target = (lambda b: torch.rand(b, 3)) if loss == "bce" else (lambda b: pixels(b, 1))
        return Case(f"sklearn_{name}", lambda: Net(made, activation, last), lambda b: {"x": pixels(b, 4), "y": target(b)}, [term(loss)], optimizer("adam", lr=0.005), exporter="skl2onnx", mode="eval",
                    dynamic_batch=True, batch_size=4, steps=4, write=write)

    common = dict(hidden_layer_sizes=(6, 5), max_iter=2)
    yield case("classifier", MLPClassifier(activation="relu", **common), lambda r: np.arange(40) % 3, torch.relu, lambda x: x.softmax(-1), "bce")
    yield case("regressor", MLPRegressor(activation="tanh", **common), lambda r: r.normal(size=40), torch.tanh, lambda x: x, "mse")


# JAX


def jax_cases():
    import jax
    import jax.numpy as jnp
    import jax2onnx

    jax.config.update("jax_enable_x64", True)
    r = np.random.default_rng(2)
    w = lambda *s: (r.normal(size=s) * 0.4).astype(np.float32)

    def mlp(p, x):
        return jax.nn.gelu(x @ p[0] + p[1]) @ p[2] + p[3]

    def layer_norm(p, x):
        h = x @ p[0]
        h = (h - h.mean(-1, keepdims=True)) * jax.lax.rsqrt(h.var(-1, keepdims=True) + 1e-5) * p[1] + p[2]
        return jax.nn.silu(h) @ p[3] + p[4]

    def attention(p, x):
        q, k, v = jnp.split(x @ p[0], 3, -1)
        a = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((5, 5), bool)), jnp.einsum("btd,bsd->bts", q, k) * 0.5, -1e9), -1)
        return (x + jnp.einsum("bts,bsd->btd", a, v) @ p[1]) @ p[2]

    def conv(p, x):
        h = jax.lax.conv_general_dilated(x, p[0], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.nn.relu(h + p[1]).mean((1, 2)) @ p[2] + p[3]

    def rounded(p, x):
        h = jnp.tanh(x @ p[0] + p[1])
        return (h + jax.lax.stop_gradient(jnp.round(h * 4) / 4 - h)) @ p[2] + jax.lax.stop_gradient(h) @ p[3]

    def scan(p, x):
        step = lambda h, v: ((jnp.tanh(v @ p[0] + h @ p[1] + p[2]),) * 2)
        return jax.lax.scan(step, jnp.zeros((x.shape[0], 4), x.dtype), x.transpose(1, 0, 2))[0] @ p[3] + p[4]

    nets = {"mlp": (mlp, [w(5, 8), w(8), w(8, 1), w(1)], (5,), (1,)), "layer_norm": (layer_norm, [w(5, 8), w(8), w(8), w(8, 3), w(3)], (5,), (3,)), "attention": (attention, [w(6, 18), w(6, 6), w(6, 3)], (5, 6), (5, 3)),
            "conv": (conv, [w(3, 3, 2, 4), w(4), w(4, 3), w(3)], (7, 7, 2), (3,)), "scan": (scan, [w(3, 4), w(4, 4), w(4), w(4, 2), w(2)], (5, 3), (2,)),
            "stop_gradient": (rounded, [w(5, 8), w(8), w(8, 3), w(8, 3)], (5,), (3,))}
    for name, (f, parameters, shape, out) in nets.items():
        call = lambda p, c, x, f=f: (f(p, x[0]), lambda g: jax.vjp(lambda q: f(q, x[0]), [jnp.asarray(v) for v in p])[1](jnp.asarray(g))[0])

        def write(module, batch, path, f=f, shape=shape):
            values = [p.detach().numpy() for p in module.parameters()]
            onnx.save(jax2onnx.to_onnx(lambda x: f([jnp.asarray(v) for v in values], x), [("B", *shape)]), path)
            renamed(path, ["x"], ["out"])

        yield Case(f"jax_{name}", lambda call=call, parameters=parameters: Foreign(call, {f"p{k}": v for k, v in enumerate(parameters)}, {}), lambda b, shape=shape, out=out: {"x": pixels(b, *shape), "y": pixels(b, *out)},
                   [term("mse")], optimizer("momentum", lr=0.05), exporter="jax2onnx", mode="eval", dynamic_batch=True, batch_size=4, steps=4, write=write)


def cases():
    for package, made in (("keras", keras_cases), ("skl2onnx", sklearn_cases), ("jax2onnx", jax_cases)):
        if importlib.util.find_spec(package) is not None:
            yield from made()
