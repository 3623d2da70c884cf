"""Sequences and sound as tutorials and model libraries write them, mostly recurrent: states that are passed in and out, loops over steps,
packed sequences. See textbook.py."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from case import classes, pixels
from sets.everyday import styles
from sets.families import weight
from sets.further import L, lin, mlp, one, steps

lengths = lambda b, most: torch.randint(1, most + 1, (b,)).sort(descending=True)[0].clamp(min=1).index_fill(0, torch.tensor([0]), most)


class WordModel(nn.Module):
    """word_language_model: time first, states in and out, tied weights, outputs flattened over time and batch."""

    def __init__(self):
        super().__init__()
        self.drop, self.encoder, self.rnn, self.decoder = nn.Dropout(0.0), nn.Embedding(13, 6), nn.LSTM(6, 6, 2, dropout=0.0), nn.Linear(6, 13)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.5, 0.5)

    def forward(self, input, h, c):
        input = input.t()
        output, hidden = self.rnn(self.drop(self.encoder(input)), (h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous()))
        decoded = self.decoder(self.drop(output)).view(-1, 13)
        return F.log_softmax(decoded, dim=1).view(input.size(0), input.size(1), 13).permute(1, 2, 0), hidden[0].permute(1, 0, 2)


class SineWaves(nn.Module):
    """time_sequence_prediction: cells over split steps, and values predicted beyond the end."""

    def __init__(self):
        super().__init__()
        self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 5), nn.LSTMCell(5, 5), nn.Linear(5, 1)

    def forward(self, input):
        outputs = []
        h_t, c_t, h_t2, c_t2 = (torch.zeros(input.size(0), 5, dtype=input.dtype) for _ in range(4))
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for i in range(3):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


class Bahdanau(nn.Module):
    """The translation tutorial: a GRU encoder, additive attention, a decoder of one step at a time with its targets fed."""

    def __init__(self):
        super().__init__()
        self.src, self.tgt = nn.Embedding(11, 6), nn.Embedding(9, 6)
        self.enc, self.dec = nn.GRU(6, 6, batch_first=True), nn.GRU(12, 6, batch_first=True)
        self.Wa, self.Ua, self.Va, self.out = lin(6, 6), lin(6, 6), lin(6, 1), lin(6, 9)

    def forward(self, x, target):
        keys, hidden = self.enc(self.src(x))
        batch_size = keys.size(0)
        step = torch.empty(batch_size, 1, dtype=torch.long).fill_(0)
        outs, attns = [], []
        for i in range(4):
            query = hidden.permute(1, 0, 2)
            scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
            weights = F.softmax(scores, dim=-1)
            context = torch.bmm(weights, keys)
            output, hidden = self.dec(torch.cat((self.tgt(step), context), dim=2), hidden)
            outs.append(self.out(output))
            attns.append(weights)
            step = target[:, i].unsqueeze(1)
        return F.log_softmax(torch.cat(outs, dim=1), dim=-1), torch.cat(attns, dim=1)


class Luong(nn.Module):
    """The chatbot tutorial: a bidirectional packed encoder whose directions are summed, time first, and general attention."""

    def __init__(self):
        super().__init__()
        self.embedding, self.gru, self.dec = nn.Embedding(11, 6), nn.GRU(6, 6, 2, bidirectional=True), nn.GRU(6, 6, 2)
        self.attn, self.concat, self.out = lin(6, 6), lin(12, 6), lin(6, 11)

    def forward(self, x, n, target):
        packed = pack_padded_sequence(self.embedding(x.t()), n.cpu(), enforce_sorted=False)
        outputs, hidden = self.gru(packed)
        outputs, _ = pad_packed_sequence(outputs, total_length=6)
        outputs = outputs[:, :, :6] + outputs[:, :, 6:]
        hidden = hidden[:2]
        all_out = []
        for t in range(3):
            rnn_output, hidden = self.dec(self.embedding(target[:, t].unsqueeze(0)), hidden)
            energies = torch.sum(rnn_output * self.attn(outputs), dim=2).t()
            weights = F.softmax(energies, dim=1).unsqueeze(1)
            context = weights.bmm(outputs.transpose(0, 1)).squeeze(1)
            all_out.append(self.out(torch.tanh(self.concat(torch.cat((rnn_output.squeeze(0), context), 1)))))
        return torch.stack(all_out, 1)


class CharRNN(nn.Module):
    """The name generator: category, character and hidden state are joined at each step."""

    def __init__(self):
        super().__init__()
        self.i2h, self.i2o, self.o2o = lin(3 + 7 + 5, 5), lin(3 + 7 + 5, 7), lin(5 + 7, 7)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, category, line):
        hidden, out = torch.zeros(category.size(0), 5), []
        onehot, cat = F.one_hot(line, 7).float(), F.one_hot(category, 3).float()
        for i in range(line.size(1)):
            combined = torch.cat((cat, onehot[:, i], hidden), 1)
            hidden, output = self.i2h(combined), self.i2o(combined)
            out.append(self.softmax(self.o2o(torch.cat((hidden, output), 1))))
        return torch.stack(out, dim=1)


class Conformer(nn.Module):
    """Subsampling by two convolutions, half-step feed forwards, gated depthwise filters, lengths to masks."""

    def __init__(self):
        super().__init__()
        self.sub = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 4, 3, 2), nn.ReLU())
        self.out, self.ff1, self.ff2 = lin(4 * 3, 8), mlp(8, 16, 8), mlp(8, 16, 8)
        self.attn, self.norms = nn.MultiheadAttention(8, 2), L(nn.LayerNorm(8) for _ in range(4))
        self.pw1, self.dw, self.bn, self.pw2 = nn.Conv1d(8, 16, 1), nn.Conv1d(8, 8, 3, padding=1, groups=8), nn.BatchNorm1d(8), nn.Conv1d(8, 8, 1)
        self.head = lin(8, 5)

    def forward(self, x, n):
        h = self.sub(x.unsqueeze(1))
        b, c, t, f = h.size()
        h = self.out(h.transpose(1, 2).contiguous().view(b, t, c * f))
        pad = torch.arange(t).expand(b, t) >= (((n - 1) // 2 - 1) // 2).clamp(min=1).unsqueeze(1)
        h = h + 0.5 * self.ff1(self.norms[0](h))
        y = self.norms[1](h).transpose(0, 1)
        h = h + self.attn(y, y, y, key_padding_mask=pad, need_weights=False)[0].transpose(0, 1)
        y = self.norms[2](h).transpose(1, 2).masked_fill(pad.unsqueeze(1), 0.0)
        h = h + self.pw2(F.silu(self.bn(self.dw(F.glu(self.pw1(y), dim=1))))).transpose(1, 2)
        return self.head(self.norms[3](h + 0.5 * self.ff2(h)))


class Wav2Vec(nn.Module):
    """Group-normed and layer-normed strided filters, positional filters with normalized weights over groups, and a contrastive loss."""

    def __init__(self):
        super().__init__()
        self.c1, self.gn, self.c2, self.ln = nn.Conv1d(1, 6, 4, 2, bias=False), nn.GroupNorm(6, 6), nn.Conv1d(6, 6, 3, 2, bias=False), nn.LayerNorm(6)
        self.pos = torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(6, 6, 4, padding=2, groups=2), name="weight", dim=2)
        self.proj, self.target, self.masked = lin(6, 5), lin(6, 5), weight(6)

    def forward(self, x):
        h = F.gelu(self.c2(F.gelu(self.gn(self.c1(x)))))
        f = self.ln(h.transpose(1, 2))
        mask = torch.zeros(f.shape[:2], dtype=torch.bool)
        mask[:, 1:3] = True
        z = torch.where(mask[..., None], self.masked, f)
        z = z + F.gelu(self.pos(z.transpose(1, 2))[..., :-1]).transpose(1, 2)
        c, q = self.proj(z), self.target(f)
        sim = F.cosine_similarity(c[:, :, None], q[:, None], dim=-1) / 0.1
        t = sim.size(1)
        loss = F.cross_entropy(sim.flatten(0, 1), torch.arange(t).repeat(sim.size(0)), reduction="none").view(-1, t)
        return (loss * mask.float()).sum() / mask.float().sum()


class TacotronStep(nn.Module):
    """Location-sensitive attention over cumulative weights, a prenet, two decoder cells, a stop token and a residual postnet."""

    def __init__(self):
        super().__init__()
        self.table, self.enc = nn.Embedding(11, 6), nn.LSTM(6, 3, batch_first=True, bidirectional=True)
        self.prenet, self.cell1, self.cell2 = mlp(4, 5, 5), nn.LSTMCell(5 + 6, 6), nn.LSTMCell(6 + 6, 6)
        self.query, self.memory, self.v, self.location, self.dense = nn.Linear(6, 4, bias=False), nn.Linear(6, 4, bias=False), nn.Linear(4, 1, bias=False), nn.Conv1d(2, 3, 3, padding=1, bias=False), nn.Linear(3, 4, bias=False)
        self.out, self.stop, self.post = lin(12, 4), lin(12, 1), nn.Sequential(nn.Conv1d(4, 5, 3, padding=1), nn.BatchNorm1d(5), nn.Tanh(), nn.Conv1d(5, 4, 3, padding=1))

    def forward(self, x, mel):
        memory, _ = self.enc(self.table(x))
        B, T = memory.size(0), memory.size(1)
        keys, frames = self.memory(memory), self.prenet(torch.cat((mel.data.new(B, 1, 4).zero_(), mel), dim=1))
        h1 = c1 = h2 = c2 = memory.new_zeros(B, 6)
        context, w, cum = torch.zeros(B, 6), torch.zeros(B, T), torch.zeros(B, T)
        outs, stops, aligns = [], [], []
        for t in range(3):
            h1, c1 = self.cell1(torch.cat((frames[:, t], context), -1), (h1, c1))
            loc = self.dense(self.location(torch.cat((w.unsqueeze(1), cum.unsqueeze(1)), dim=1)).transpose(1, 2))
            e = self.v(torch.tanh(self.query(h1.unsqueeze(1)) + loc + keys)).squeeze(-1)
            w = F.softmax(e, dim=1)
            context = torch.bmm(w.unsqueeze(1), memory).squeeze(1)
            cum = cum + w
            h2, c2 = self.cell2(torch.cat((h1, context), -1), (h2, c2))
            y = torch.cat((h2, context), dim=1)
            outs.append(self.out(y))
            stops.append(self.stop(y))
            aligns.append(w)
        mels = torch.stack(outs).transpose(0, 1).contiguous().transpose(1, 2)
        return mels, mels + self.post(mels), torch.stack(stops).transpose(0, 1).squeeze(-1)


class WaveNetStack(nn.Module):
    """Dilated causal filters with global conditioning, skips summed, mu-law classes, and a receptive field cut from the left."""

    def __init__(self):
        super().__init__()
        self.table, self.cond = nn.Embedding(16, 6), nn.Embedding(3, 4)
        self.dil, self.cc = L(nn.Conv1d(6, 12, 2, dilation=d) for d in (1, 2, 4)), L(nn.Conv1d(4, 12, 1, bias=False) for _ in range(3))
        self.res, self.skip, self.end = L(nn.Conv1d(6, 6, 1) for _ in range(3)), L(nn.Conv1d(6, 5, 1) for _ in range(3)), nn.Conv1d(5, 16, 1)

    def forward(self, x, speaker):
        h, g, skip = self.table(x).transpose(1, 2), self.cond(speaker).unsqueeze(-1), 0
        for d, cc, r, s in zip(self.dil, self.cc, self.res, self.skip):
            y = d(h) + cc(g)
            y = torch.tanh(y[:, :6]) * torch.sigmoid(y[:, 6:])
            sk = s(y)
            skip = sk + (skip[:, :, -sk.size(2) :] if torch.is_tensor(skip) else 0)
            h = r(y) + h[:, :, -y.size(2) :]
        return self.end(F.relu(skip))


class PackedStack(nn.Module):
    """Packed bidirectional layers of two sizes with a projection, the last states of both directions, and attention pooling by lengths."""

    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.top = nn.Embedding(11, 5, padding_idx=0), nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True, proj_size=3, dropout=0.0), nn.GRU(6, 4, batch_first=True)
        self.att, self.head = lin(4, 1), lin(4 + 6, 3)

    def forward(self, x, n):
        packed = pack_padded_sequence(self.table(x), n, batch_first=True)
        packed, (h, c) = self.rnn(packed)
        out, sizes = pad_packed_sequence(packed, batch_first=True, total_length=6)
        out, _ = self.top(out)
        mask = torch.arange(6)[None, :] < n[:, None]
        score = self.att(out).squeeze(-1).masked_fill(~mask, float("-inf"))
        pooled = (torch.softmax(score, 1).unsqueeze(-1) * out).sum(1)
        return self.head(torch.cat([pooled, h[-2], h[-1]], 1))


class CTCWritten(nn.Module):
    """A connectionist loss by its forward recursion in logarithms, over labels interleaved with blanks."""

    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(5, 6, batch_first=True), lin(6, 5)

    def forward(self, x, label):
        lp = F.log_softmax(self.out(self.rnn(x)[0]), -1)
        label = label.clamp(min=1)
        b, n = label.shape
        ext = torch.zeros(b, 2 * n + 1, dtype=torch.long)
        ext[:, 1::2] = label
        skip = torch.zeros_like(ext, dtype=torch.bool)
        skip[:, 2:] = (ext[:, 2:] != 0) & (ext[:, 2:] != ext[:, :-2])
        emit = lp.gather(2, ext[:, None].expand(-1, lp.size(1), -1))
        alpha = torch.full((b, 2 * n + 1), -1e4)
        alpha = torch.cat([emit[:, 0, :2], alpha[:, 2:]], 1)
        for t in range(1, lp.size(1)):
            a1 = F.pad(alpha, (1, 0), value=-1e4)[:, :-1]
            a2 = torch.where(skip, F.pad(alpha, (2, 0), value=-1e4)[:, :-2], torch.tensor(-1e4))
            alpha = torch.logsumexp(torch.stack([alpha, a1, a2]), 0) + emit[:, t]
        return -torch.logaddexp(alpha[:, -1], alpha[:, -2]).mean() / n


class NeuralODE(nn.Module):
    """Runge-Kutta steps of a time-dependent field with the trace of its Jacobian accumulated (a continuous flow)."""

    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.b1, self.u = weight(8, 3), weight(3, 8), weight(8), weight(8)

    def f(self, t, z):
        a = torch.tanh(z @ self.w1.t() + self.b1 + t * self.u)
        return a @ self.w2.t(), -((1 - a**2) * (self.w1 * self.w2.t()).sum(1)).sum(1)

    def forward(self, x):
        z, logp = x, torch.zeros(x.shape[0])
        for t in torch.linspace(0, 1, 4)[:-1].tolist():
            h = 1 / 3
            k1, l1 = self.f(t, z)
            k2, l2 = self.f(t + h / 2, z + h / 2 * k1)
            k3, l3 = self.f(t + h / 2, z + h / 2 * k2)
            k4, l4 = self.f(t + h, z + h * k3)
            z, logp = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), logp + h / 6 * (l1 + 2 * l2 + 2 * l3 + l4)
        normal = torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3), validate_args=False)
        return -(normal.log_prob(z) - logp).mean()


TEXTBOOK = {
    "word_model": (WordModel, lambda b: {"input": classes(13, b, 5), "h": pixels(b, 2, 6), "c": pixels(b, 2, 6)}, [((13, 5), 1), ((2, 6), 0)]),
    "sine_waves": (SineWaves, lambda b: {"input": pixels(b, 6)}, [((9,), 0)]),
    "bahdanau": (Bahdanau, lambda b: {"x": classes(11, b, 5), "target": classes(9, b, 4)}, [((4, 9), 2), ((4, 5), 0)]),
    "luong": (Luong, lambda b: {"x": classes(11, b, 6), "n": lengths(b, 6), "target": classes(11, b, 3)}, [((3, 11), 2)]),
    "char_rnn": (CharRNN, lambda b: {"category": classes(3, b), "line": classes(7, b, 5)}, [((5, 7), 2)]),
    "conformer_masked": (Conformer, lambda b: {"x": pixels(b, 15, 15), "n": lengths(b, 15)}, [((3, 5), 2)]),
    "wav2vec_loss": (Wav2Vec, lambda b: {"x": pixels(b, 1, 26)}, [None]),
    "tacotron_step": (TacotronStep, lambda b: {"x": classes(11, b, 5), "mel": pixels(b, 3, 4)}, [((4, 3), 0), ((4, 3), 0), ((3,), 0)]),
    "wavenet_stack": (WaveNetStack, lambda b: {"x": classes(16, b, 12), "speaker": classes(3, b)}, [((16, 5), 1)]),
    "packed_stack": (PackedStack, lambda b: {"x": classes(11, b, 6), "n": lengths(b, 6)}, [((3,), 1)]),
    "ctc_written": (CTCWritten, lambda b: {"x": pixels(b, 8, 5), "label": classes(5, b, 3)}, [None]),
    "continuous_flow": (NeuralODE, lambda b: {"x": pixels(b, 3)}, [None]),
}


def cases():
    return styles(TEXTBOOK, oldest=13)
