// RMSNorm with the residual add, and SiLU times up, beside plain loops in double.
#pragma once
#include "attention_api.h"
#include "checks.h"

extern "C" void ts_normed(const TsNormed *, int64_t isa, int64_t dtype);
extern "C" void ts_gated(const TsGated *, int64_t isa, int64_t dtype);

inline void check_normed(Dice &dice, int64_t isa, int64_t dtype, Seen &seen) {
    const int64_t rows = dice.between(1, 5), width = dice.between(1, 3000);
    const bool adds = dice.between(0, 2) > 0;
    Array x(TS_FP32, rows * width), added(dtype, rows * width), weight(TS_FP32, width);
    Array out(dtype, rows * width + 3);
    x.random(dice), added.random(dice), weight.random(dice);
    const Array before = x;
    const TsNormed job = {reinterpret_cast<float *>(x.at(0)),
                          adds ? added.at(0) : nullptr,
                          reinterpret_cast<const float *>(weight.at(0)),
                          out.at(0), rows, width, 2, 1e-5f};
    ts_normed(&job, isa, dtype);
    for (int64_t r = 0; r < rows; ++r) {
        double squares = 0;
        for (int64_t i = r * width; i < (r + 1) * width; ++i) {
            seen.look(x[i], nearest(before[i] + (adds ? added[i] : 0), TS_FP32), 1e-30);
            squares += x[i] * x[i];
        }
        const double scale = 1 / sqrt(squares / static_cast<double>(width) + 1e-5f);
        for (int64_t i = 0; i < width; ++i) {
            const double want = x[r * width + i] * scale * weight[i];
            seen.look(out[r * width + i], want, (half_unit(dtype) + 1e-6) * fabs(want) + 1e-7);
        }
    }
    for (int64_t i = 0; i < 3; ++i) seen.must(isnan(out[rows * width + i]));
}

inline void check_gated(Dice &dice, int64_t isa, int64_t dtype, Seen &seen) {
    const int64_t rows = dice.between(1, 5), width = dice.between(1, 3000);
    Array both(dtype, 2 * rows * width), out(dtype, rows * width + 3);
    for (int64_t i = 0; i < both.count; ++i) both.set(i, 8 * dice.real());
    const TsGated job = {both.at(0), out.at(0), rows, width, 2};
    ts_gated(&job, isa, dtype);
    // For answers in 16 bits e^x may be as coarse as 2^-14.
    const double coarse = dtype == TS_FP32 ? 1e-6 : 0x1p-13;
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < width; ++i) {
            const double gate = both[2 * r * width + i], up = both[(2 * r + 1) * width + i];
            const double want = gate / (1 + exp(-gate)) * up;
            seen.look(out[r * width + i], want, (half_unit(dtype) + coarse) * fabs(want) + 1e-7);
        }
    }
    for (int64_t i = 0; i < 3; ++i) seen.must(isnan(out[rows * width + i]));
}
