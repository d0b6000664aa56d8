// `Dots` of bfloat16 with AArch64's BFDOT, which adds the products of a pair to each lane: no
// widening, half the multiplications. Weights are rounded to bfloat16. Included by
// `attention_dots.h` alone.
#pragma once

namespace {

template <>
struct Dots<bf16> {
    using Query = bf16;

    static uint16x8_t eight(const bf16 *from) {
        return vld1q_u16(reinterpret_cast<const uint16_t *>(from));
    }
    static uint16x8_t some(const bf16 *from, int64_t left) {
        if (left >= 8) return eight(from);
        bf16 whole[8] = {};
        memcpy(whole, from, static_cast<size_t>(left) * 2);
        return eight(whole);
    }
    static bfloat16x8_t pairs(uint16x8_t v) { return vreinterpretq_bf16_u16(v); }

    static void take_query(const bf16 *from, int64_t dim, bf16 *to) {
        memset(to, 0, static_cast<size_t>(padded(dim)) * 2);
        memcpy(to, from, static_cast<size_t>(dim) * 2);
    }

    template <int G>
    static void scores(const bf16 *q, const bf16 *const *key, int n, int64_t dim, vf *out) {
        const int64_t step = padded(dim);
        vf s[G][4];
        for (int g = 0; g < G; ++g)
            for (int k = 0; k < 4; ++k) s[g][k] = set(0.0f);
        for (int64_t i = 0; i < dim; i += 8) {
            for (int k = 0; k < 4; ++k) {
                if (k >= n) break;
                const bfloat16x8_t v = pairs(some(key[k] + i, dim - i));
                for (int g = 0; g < G; ++g)
                    s[g][k] = vbfdotq_f32(s[g][k], v, pairs(eight(q + g * step + i)));
            }
        }
        for (int g = 0; g < G; ++g) out[g] = lanes_of_four(s[g][0], s[g][1], s[g][2], s[g][3]);
    }

    // O [G, padded] += p . V of n keys. Two keys' elements side by side are the pairs.
    template <int G>
    static void weighted(const vf *p, const bf16 *const *value, int n, int64_t dim, float *o) {
        const int64_t step = padded(dim);
        bfloat16x4_t weight[G];
        for (int g = 0; g < G; ++g) weight[g] = vcvt_bf16_f32(p[g]);
        for (int64_t i = 0; i < dim; i += 8) {
            uint16x8_t v[4];
            for (int k = 0; k < 4; ++k)
                v[k] = k < n ? some(value[k] + i, dim - i) : vdupq_n_u16(0);
            const bfloat16x8_t low = pairs(vzip1q_u16(v[0], v[1]));
            const bfloat16x8_t high = pairs(vzip2q_u16(v[0], v[1]));
            const bfloat16x8_t low_after = pairs(vzip1q_u16(v[2], v[3]));
            const bfloat16x8_t high_after = pairs(vzip2q_u16(v[2], v[3]));
            for (int g = 0; g < G; ++g) {
                float *at = o + g * step + i;
                vf first = vbfdotq_lane_f32(load(at), low, weight[g], 0);
                vf second = vbfdotq_lane_f32(load(at + W), high, weight[g], 0);
                store(at, vbfdotq_lane_f32(first, low_after, weight[g], 1));
                store(at + W, vbfdotq_lane_f32(second, high_after, weight[g], 1));
            }
        }
    }

    static void in_order(float *, int64_t) {}
};

}  // namespace
