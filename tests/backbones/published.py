"""Published networks with the names of their authors: oracles for architectures and renaming.

A `Published` network makes random weights at the first call, under the names that its authors use,
and computes with plain torch functions. It uses no code of fewlabels.
"""

import torch
from torch.nn import functional as F


class Published:
    def __init__(self, seed=0):
        self.state = {}
        self.generator = torch.Generator().manual_seed(seed)

    def weight(self, name, shape, spread=1.0, around=0.0):
        if name not in self.state:
            self.state[name] = around + spread * torch.randn(shape, generator=self.generator)
        return self.state[name]

    def conv(self, name, x, n_out, kernel, stride=1, groups=1, bias=False):
        n_in = x.shape[1] // groups
        weight = self.weight(
            f"{name}.weight",
            (n_out, n_in, kernel, kernel),
            spread=(2 / (n_in * kernel * kernel)) ** 0.5,
        )
        shift = self.weight(f"{name}.bias", (n_out,)) if bias else None
        return F.conv2d(x, weight, shift, stride=stride, padding=kernel // 2, groups=groups)

    def norm(self, name, x):
        n = x.shape[1]
        scale, shift = (
            self.weight(f"{name}.weight", (n,), 0.2, 1.0),
            self.weight(f"{name}.bias", (n,), 0.3),
        )
        mean = self.weight(f"{name}.running_mean", (n,), 0.3)
        if f"{name}.running_var" not in self.state:
            self.state[f"{name}.running_var"] = 0.5 + torch.rand(n, generator=self.generator)
            self.state[f"{name}.num_batches_tracked"] = torch.tensor(7)
        return F.batch_norm(x, mean, self.state[f"{name}.running_var"], scale, shift)

    def head(self, name, features, n_classes=5):
        return features @ self.weight(
            f"{name}.weight", (n_classes, features.shape[1])
        ).T + self.weight(f"{name}.bias", (n_classes,))


def pooled(x):
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


def s2m2_wrn(net, x, width=2, n_blocks=2):
    x = net.conv("conv1", x, 16, 3)
    for group, stride in ((1, 1), (2, 2), (3, 2)):
        n_out = 8 * 2**group * width
        for i in range(n_blocks):
            name = f"block{group}.layer.{i}"
            first = stride if i == 0 else 1
            active = F.relu(net.norm(f"{name}.bn1", x))
            residual = net.conv(f"{name}.conv1", active, n_out, 3, first)
            residual = net.conv(
                f"{name}.conv2", F.relu(net.norm(f"{name}.bn2", residual)), n_out, 3
            )
            x = residual + (
                x
                if x.shape[1] == n_out
                else net.conv(f"{name}.convShortcut", active, n_out, 1, first)
            )
    features = pooled(F.relu(net.norm("bn1", x)))
    (
        net.weight("linear.L.weight_g", (5, 1)),
        net.weight("linear.L.weight_v", (5, features.shape[1])),
    )  # the cosine classifier
    return features


def simpleshot_wrn(net, x, width=2, n_blocks=2):
    x = net.conv("conv1", x, 16, 3, bias=True)
    for group, stride in ((1, 1), (2, 2), (3, 2)):
        n_out = 8 * 2**group * width
        for i in range(n_blocks):
            name = f"layer{group}.{i}"
            first = stride if i == 0 else 1
            residual = net.conv(
                f"{name}.conv1", F.relu(net.norm(f"{name}.bn1", x)), n_out, 3, bias=True
            )
            residual = net.conv(
                f"{name}.conv2",
                F.relu(net.norm(f"{name}.bn2", residual)),
                n_out,
                3,
                first,
                bias=True,
            )
            same = x.shape == residual.shape
            x = residual + (
                x if same else net.conv(f"{name}.shortcut.0", x, n_out, 1, first, bias=True)
            )
    features = pooled(F.relu(net.norm("bn1", x)))
    net.head("linear", features)
    return features


def resnet(net, x, channels=(4, 6, 8, 10), n_blocks=2):
    x = F.relu(net.norm("bn1", net.conv("conv1", x, channels[0], 3)))
    for layer, n_out in enumerate(channels, start=1):
        for i in range(n_blocks):
            name = f"layer{layer}.{i}"
            stride = 2 if layer > 1 and i == 0 else 1
            residual = F.relu(
                net.norm(f"{name}.bn1", net.conv(f"{name}.conv1", x, n_out, 3, stride))
            )
            residual = net.norm(f"{name}.bn2", net.conv(f"{name}.conv2", residual, n_out, 3))
            if residual.shape != x.shape:
                x = net.norm(
                    f"{name}.downsample.1", net.conv(f"{name}.downsample.0", x, n_out, 1, stride)
                )
            x = F.relu(residual + x)
    features = pooled(x)
    net.head("fc", features)
    return features


def simpleshot_conv4(net, x, channels=(4, 6, 8, 10)):
    for i, n_out in enumerate(channels, start=1):
        x = F.max_pool2d(
            F.relu(net.norm(f"conv{i}.1", net.conv(f"conv{i}.0", x, n_out, 3, bias=True))), 2
        )
    features = x.flatten(1)
    net.head("logits", features)
    return features


def simpleshot_mobilenet(
    net, x, stem=4, channels=(4, 6, 6, 8, 8, 10, 10, 10, 10, 10, 10, 12, 12), halving=(1, 3, 5, 11)
):
    x = F.relu(net.norm("bn1", net.conv("conv1", x, stem, 3)))
    for i, n_out in enumerate(channels):
        depthwise = net.conv(
            f"layers.{i}.conv1", x, x.shape[1], 3, 2 if i in halving else 1, groups=x.shape[1]
        )
        x = F.relu(net.norm(f"layers.{i}.bn1", depthwise))
        x = F.relu(net.norm(f"layers.{i}.bn2", net.conv(f"layers.{i}.conv2", x, n_out, 1)))
    features = pooled(x)
    net.head("linear", features)
    return features


def simpleshot_densenet(net, x, growth=2, stem=4, n_layers=(6, 12, 24, 16)):
    x = net.conv("features.conv0", x, stem, 3)
    for block, n in enumerate(n_layers, start=1):
        for layer in range(1, n + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            new = net.conv(f"{name}.conv1", F.relu(net.norm(f"{name}.norm1", x)), 4 * growth, 1)
            new = net.conv(f"{name}.conv2", F.relu(net.norm(f"{name}.norm2", new)), growth, 3)
            x = torch.cat([x, new], dim=1)
        if block < len(n_layers):
            name = f"features.transition{block}"
            x = F.avg_pool2d(
                net.conv(f"{name}.conv", F.relu(net.norm(f"{name}.norm", x)), x.shape[1] // 2, 1), 2
            )
    features = pooled(F.relu(net.norm("features.norm5", x)))
    net.head("classifier", features)
    return features
