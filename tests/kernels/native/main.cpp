// Calls every function of the native library with random shapes, on every instruction set that this
// CPU has, and compares with plain loops in double. Needs neither Python nor torch, so it also runs
// where only an emulator does. Prints a line a call and dtype; ends with 1 where an answer was off.
//
//     main [rounds [seed]]
//
// ts_linear is AMX's alone and checked in Python.
#include "check_attention.h"
#include "check_head.h"
#include "check_lora.h"
#include "check_ops.h"
#include "check_pack.h"

extern "C" int ts_abi();
extern "C" int ts_best_isa();
extern "C" int ts_threads();

namespace {

struct Call {
    const char *name;
    void (*check)(Dice &, int64_t isa, int64_t dtype, Seen &);
};
const Call CALLS[] = {
    {"normed", check_normed}, {"gated", check_gated}, {"attend", check_attention},
    {"lora", check_lora},     {"head", check_head},   {"pack", check_pack},
};

const char *name_of(int64_t isa) {
    switch (isa) {
        case TS_PLAIN: return "plain";
        case TS_AVX2: return "avx2";
        case TS_AVX512: return "avx512";
        case TS_AMX: return "amx";
        case TS_NEON: return "neon";
        case TS_NEONBF16: return "neonbf16";
        default: return nullptr;
    }
}

}  // namespace

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 10;
    const int64_t best = ts_best_isa();
    bool off = ts_abi() != TS_ABI || ts_threads() < 1 || !name_of(best);
    if (off) printf("abi %d, threads %d, isa %d\n", ts_abi(), ts_threads(), ts_best_isa());
    const char *dtypes[] = {"fp32", "bf16", "fp16"};
    for (int64_t isa = best >= TS_NEON ? TS_NEON : TS_PLAIN; isa <= best; ++isa) {
        for (const Call &call : CALLS) {
            for (int64_t dtype = 0; dtype < 3; ++dtype) {
                Dice dice;  // the same shapes for every instruction set
                if (argc > 2) dice.state += static_cast<uint64_t>(atoll(argv[2]));
                Seen seen;
                for (int i = 0; i < rounds; ++i) call.check(dice, isa, dtype, seen);
                if (!seen.answers) continue;
                const bool holds = seen.worst <= 1;
                off |= !holds;
                printf("%-4s %-8s %-6s %s: %lld answers, the worst took %.2f of its room\n",
                       holds ? "ok" : "OFF", name_of(isa), call.name, dtypes[dtype],
                       static_cast<long long>(seen.answers), seen.worst);
            }
        }
    }
    return off;
}
