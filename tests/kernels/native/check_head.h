// Logits of a weight in 16 bits, and each row's best, beside plain loops in double.
#pragma once
#include "checks.h"
#include "head.h"

extern "C" int64_t ts_head_scratch(int64_t rows, int64_t width);
extern "C" int64_t ts_head_best_scratch(int64_t rows, int64_t threads);
extern "C" void ts_head(const TsHead *);
extern "C" int ts_head_best(const TsHead *, float *best, int64_t *ids);

inline void check_head(Dice &dice, int64_t isa, int64_t dtype, Seen &seen) {
    if (dtype == TS_FP32 || (dtype == TS_FP16 && isa == TS_PLAIN)) return;  // left to torch
    const int64_t rows = dice.between(1, 40), vocab = dice.between(1, 120), threads = 2;
    const int64_t width = dice.between(0, 1) ? 32 * dice.between(1, 6) : dice.between(1, 200);
    const int64_t stride = vocab + dice.between(0, 4);
    Array x(TS_FP32, rows * width), w(dtype, vocab * width), out(TS_FP32, rows * stride);
    for (int64_t i = 0; i < x.count; ++i) x.set(i, 20 * dice.real());
    w.random(dice);
    Scratch scratch(ts_head_scratch(rows, width) + ts_head_best_scratch(rows, threads));
    const TsHead job = {isa, dtype, threads, reinterpret_cast<int64_t>(x.at(0)), rows, width,
                        reinterpret_cast<int64_t>(w.at(0)), vocab,
                        reinterpret_cast<int64_t>(out.at(0)), stride,
                        reinterpret_cast<int64_t>(scratch.at)};
    ts_head(&job);
    std::vector<float> best(static_cast<size_t>(rows));
    std::vector<int64_t> ids(static_cast<size_t>(rows));
    const bool found = ts_head_best(&job, best.data(), ids.data());
    for (int64_t r = 0; r < rows; ++r) {
        int64_t largest = 0;
        for (int64_t v = 0; v < vocab; ++v) {
            double want = 0, sizes = 0;
            for (int64_t k = 0; k < width; ++k) {
                const double one = x[r * width + k] * w[v * width + k];
                want += one, sizes += fabs(one);
            }
            seen.look(out[r * stride + v], want, sizes * 0x1p-21);
            if (out[r * stride + v] > out[r * stride + largest]) largest = v;
        }
        for (int64_t v = vocab; v < stride; ++v) seen.must(isnan(out[r * stride + v]));
        if (!found) continue;
        seen.must(ids[static_cast<size_t>(r)] == largest);
        seen.must(best[static_cast<size_t>(r)] == out[r * stride + largest]);
    }
}
