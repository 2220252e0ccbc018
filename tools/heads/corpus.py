"""Texts of generate.py on the device, cut into batches of fixed shape."""
import numpy
import torch

# Rows of a batch; shorter texts are padded, longer ones cut. Two less is a multiple of 16, which
# attention kernels like.
LENGTHS = (130, 194, 258, 322)
ANSWERED = 2  # kind of the tokens that the model answered
PRIOR = 0.5  # chosen on the development questions of measure.py


class Corpus:
    def __init__(self, arrays, device):
        """arrays: of generate.py."""
        ends = numpy.asarray(arrays["ends"])
        begins = numpy.concatenate([[0], ends[:-1]])
        put = lambda value: torch.as_tensor(numpy.asarray(value)).to(device)
        self.tokens, self.kinds = put(arrays["tokens"]), put(arrays["kinds"])
        self.begins, self.lengths = put(begins), put(ends - begins).clamp(max=LENGTHS[-1])
        self.prompts = put(arrays["prompts"])
        self.device = device
        lengths = ends - begins
        self.buckets = []
        for low, high in zip((8,) + LENGTHS[:-1], LENGTHS):
            last = high == LENGTHS[-1]
            self.buckets.append(numpy.flatnonzero((lengths > low) & ((lengths <= high) | last)))

    def batches(self, rows, random):
        """One pass over all texts: (texts, length) in random order. All batches of a length have
        the same number of texts; the rest of a bucket is left out."""
        found = []
        for length, bucket in zip(LENGTHS, self.buckets):
            count = max(1, rows // length)
            order = random.permutation(bucket)
            found += [(order[begin:begin + count], length)
                      for begin in range(0, len(order) - count + 1, count)]
        random.shuffle(found)
        return found

    def load(self, texts, length):
        """tokens and kinds [texts, length], lengths and prompts [texts]."""
        texts = torch.as_tensor(texts).to(self.device)
        lengths = self.lengths[texts]
        row = torch.arange(length, device=self.device)[None, :]
        inside = row < lengths[:, None]
        place = (self.begins[texts][:, None] + row).clamp(max=len(self.tokens) - 1)
        tokens = torch.where(inside, self.tokens[place].long(), 0)
        kinds = torch.where(inside, self.kinds[place], 0)
        return tokens, kinds, lengths, self.prompts[texts]


def rank_tokens(tokens, vocabulary, always=(0, 1, 2)):
    """All ids, the most frequent first. Counts say little about rare tokens, so a prior is added:
    BPE merges frequent pairs first, and frequency falls with the id."""
    ids = numpy.arange(vocabulary)
    amounts = numpy.bincount(tokens, minlength=vocabulary).astype(float)
    prior = PRIOR * min(len(tokens), 300_000) / (ids + 1000) / numpy.log(vocabulary / 1000 + 1)
    amounts = amounts + prior
    amounts[list(always)] += len(tokens)
    return numpy.argsort(-amounts, kind="stable")
