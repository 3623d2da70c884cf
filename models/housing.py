# %% [markdown]
# # Boston housing, from Python
# Trains `housing_mlp.onnx` on the 506 rows of `data/boston.csv`, holds a fifth back, and compares with a linear model. Editors that know `# %%`
# show this file as a notebook; `python models/housing.py` runs it. Needs the wheel (docs/python.md) and numpy.

# %%
import pathlib
import tempfile

import gradloom
import numpy as np

try:
    here = pathlib.Path(__file__).parent
except NameError:  # in a notebook
    here = pathlib.Path("models")

# %% [markdown]
# ## A plan
# The notes say what was guessed. Sizes are exact before the first step.

# %%
plan = gradloom.compile(here / "housing_mlp.onnx", loss="mse(value, target)", optimizer="adam", lr=0.01, batch=64)
print(*plan.notes(), sep="\n")
print({name: value for name, value in plan.memory().items() if name.endswith("_bytes")})

# %% [markdown]
# ## Data
# The columns are selected by name. The transform is fitted on the training part only.

# %%
data = gradloom.Dataset(here / "data" / "boston.csv", plan, columns={"features": "CRIM..LSTAT", "target": "MEDV"},
                        transforms={"features": "standardize"}, eval_split="20%", seed=3)
train = next(data.batches(len(data), in_order=True))
held_back = next(data.held_back.batches(len(data.held_back), in_order=True))
print(len(data), "rows to train on,", len(data.held_back), "held back")

# %% [markdown]
# ## The result of a linear model

# %%
def with_ones(features):
    return np.hstack([features, np.ones((len(features), 1), np.float32)])


linear, *_ = np.linalg.lstsq(with_ones(train["features"]), train["target"], rcond=None)
linear_rmse = float(np.sqrt(np.mean((with_ones(held_back["features"]) @ linear - held_back["target"]) ** 2)))
print(f"least squares: {linear_rmse:.2f} thousand dollars")

# %% [markdown]
# ## Training

# %%
session = gradloom.Session(plan, seed=7)
history = []
result = session.fit(data, data.held_back, epochs=150, batch=64, metrics=["rmse(value, target)"],
                     on_evaluation=lambda evaluation: history.append(evaluation.values["rmse"]))
for epoch in range(0, len(history), 25):
    print(f"epoch {epoch + 1:3}: {history[epoch]:6.2f} " + "#" * int(2 * history[epoch]))
print(f"network: {min(history):.2f} thousand dollars after {result.step} updates")

# %% [markdown]
# ## Results
# The same file with new weights, for any ONNX runtime, and a checkpoint from which training can continue.

# %%
predicted = session.predict(features=held_back["features"])["value"]
error = float(np.sqrt(np.mean((predicted - held_back["target"]) ** 2)))
with tempfile.TemporaryDirectory() as folder:
    session.export(f"{folder}/housing.onnx")
    session.save(f"{folder}/housing.ckpt")
    again = gradloom.Session(plan, checkpoint=f"{folder}/housing.ckpt")
    same = bool(np.array_equal(again.predict(features=held_back["features"])["value"], predicted))
print(f"error of the last weights: {error:.2f}; the checkpoint predicts the same: {same}")
