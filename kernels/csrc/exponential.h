// e^x and what is made of it: the weight of a score in a softmax, and SiLU times up.
#pragma once
#include "simd.h"

namespace {

// e^x to about 2 units in the last place for x <= 89; NaN stays NaN; what lies below `low` counts
// as `low`. Cody and Waite's reduction, a polynomial of degree 6 (as in Cephes' expf).
inline vf exponential(vf x, float low) {
    x = larger(set(low), x);
    const vf n = nearest(x * set(1.44269504088896341f));
    const vf r = fma(n, set(2.12194440e-4f), fma(n, set(-0.693359375f), x));
    vf p = set(1.9875691500e-4f);
    p = fma(p, r, set(1.3981999507e-3f));
    p = fma(p, r, set(8.3334519073e-3f));
    p = fma(p, r, set(4.1665795894e-2f));
    p = fma(p, r, set(1.6666665459e-1f));
    p = fma(p, r, set(5.0000001201e-1f));
    return times_power_of_two(fma(p * r, r, r + set(1.0f)), n);
}

// The weight of a score in a softmax, e^(scale (score - most)), for answers of type T: in float32
// as exact as that, in 16 bits to 2^-14. Never a subnormal, which would cost a hundred cycles:
// where zero is meant, the caller puts it.
template <class T>
struct Weight {
    vf scale;
    explicit Weight(float s) : scale(set(s)) {}
    vf operator()(vf score, float most) const {
        return exponential((score - set(most)) * scale, -87.0f);
    }
    // SiLU(gate) x up. Of e^-|gate|, which cannot overflow: the sigmoid is 1 or that / (1 + that).
    static vf gated(vf gate, vf up) {
        const vf e = exponential(set(0.0f) - absolute(gate), -104.0f);
        return gate * by_sign(gate, set(1.0f), e) / (set(1.0f) + e) * up;
    }
};

#if defined(__AVX512F__)
// 2^x to 2^-14: Taylor's polynomial of degree 4 around the nearest integer.
inline vf short_power(vf x) {
    const vf n = nearest(x), f = x - n;
    vf p = fma(set(9.618129e-3f), f, set(5.550411e-2f));
    p = fma(p, f, set(2.402265e-1f));
    p = fma(p, f, set(6.931472e-1f));
    return times_power_of_two(fma(p, f, set(1.0f)), n);
}

struct ShortWeight {
    vf scale;
    explicit ShortWeight(float s) : scale(set(s * 1.44269504088896341f)) {}
    vf operator()(vf score, float most) const {
        return short_power(larger(set(-126.0f), fma(score, scale, set(0.0f) - set(most) * scale)));
    }
    // Where 2^x is infinite the sigmoid is 0, as it should be.
    static vf gated(vf gate, vf up) {
        const vf e = short_power(gate * set(-1.44269504088896341f));
        return gate * up * _mm512_rcp14_ps(set(1.0f) + e);
    }
};
template <>
struct Weight<bf16> : ShortWeight {
    using ShortWeight::ShortWeight;
};
template <>
struct Weight<f16> : ShortWeight {
    using ShortWeight::ShortWeight;
};
#endif

}  // namespace
