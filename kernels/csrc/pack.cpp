// The one call that packs an adapter: picks the path of the instruction set it is told, and the thread.
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pack.h"

static int pack_here(TsPack &pack) {
#if defined(__x86_64__)
    if (pack.isa >= TS_AVX2) return pack_avx2(pack);
#endif
    return pack_plain(pack);
}

#if defined(__linux__)
struct Job {
    TsPack *pack;
    int why;
};

static void *pack_nicely(void *given) {
    Job *const job = (Job *)given;
    // A thread's own niceness is Linux's alone. Where it may not be changed, it stays.
    const id_t me = (id_t)syscall(SYS_gettid);
    setpriority(PRIO_PROCESS, me, getpriority(PRIO_PROCESS, me) + (int)job->pack->nicer);
    job->why = pack_here(*job->pack);
    return nullptr;
}
#endif

// The caller's own thread cannot be made nicer for a while: it could not be made as before again, and
// would keep others waiting for Python's lock whenever it holds that.
TS_API int ts_pack(TsPack *pack) {
#if defined(__linux__)
    Job job = {pack, 0};
    pthread_t thread;
    if (pack->nicer && !pthread_create(&thread, nullptr, pack_nicely, &job)) {
        pthread_join(thread, nullptr);
        return job.why;
    }
#endif
    return pack_here(*pack);
}
