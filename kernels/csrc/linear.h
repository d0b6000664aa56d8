// What a linear's call is told. kernels/cpu_linear.py fills it: all fields are int64.
//
// Semantics: y = x . W^T (+ bias), bf16, sums in fp32, rounded once.
#pragma once
#include "common.h"

// Addresses of x [rows, in], y [rows, out], W (packed there, see linear_amx.cpp) and bias [out] or
// 0. in is a multiple of 32, out of 16.
struct TsLinear {
    int64_t x, y, packed, bias;
    int64_t rows, in, out, threads;
};

void linear_amx(const TsLinear &);
