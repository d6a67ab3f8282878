"""The x86-64 numbers of every system call that a sandboxed program may make, by purpose.

Numbers are kernel ABI (arch/x86/entry/syscalls/syscall_64.tbl) and never change. A call that is not
listed here is refused, so a call that a newer kernel adds is refused until somebody has thought
about it.
"""

from __future__ import annotations

_BY_PURPOSE = {
    "reading, writing and moving bytes": """
        read=0 write=1 readv=19 writev=20 pread64=17 pwrite64=18 preadv=295 pwritev=296
        preadv2=327 pwritev2=328 lseek=8 sendfile=40 splice=275 tee=276 copy_file_range=326
    """,
    "files and directories": """
        open=2 openat=257 openat2=437 creat=85 close=3 close_range=436 stat=4 fstat=5 lstat=6
        newfstatat=262 statx=332 access=21 faccessat=269 faccessat2=439 dup=32 dup2=33
        dup3=292 fcntl=72 flock=73 fsync=74 fdatasync=75 truncate=76 ftruncate=77
        fallocate=285 fadvise64=221 readahead=187 getdents=78 getdents64=217 getcwd=79
        chdir=80 fchdir=81 rename=82 renameat=264 renameat2=316 mkdir=83 mkdirat=258 rmdir=84
        link=86 linkat=265 unlink=87 unlinkat=263 symlink=88 symlinkat=266 readlink=89
        readlinkat=267 chmod=90 fchmod=91 fchmodat=268 chown=92 fchown=93 lchown=94
        fchownat=260 umask=95 mknod=133 mknodat=259 utime=132 utimes=235 utimensat=280
        futimesat=261 statfs=137 fstatfs=138 getxattr=191 lgetxattr=192 fgetxattr=193
        listxattr=194 llistxattr=195 flistxattr=196 setxattr=188 lsetxattr=189 fsetxattr=190
        removexattr=197 lremovexattr=198 fremovexattr=199 sync_file_range=277 memfd_create=319
        ioctl=16
    """,
    "memory": """
        mmap=9 mprotect=10 munmap=11 brk=12 mremap=25 msync=26 mincore=27 madvise=28 mlock=149
        mlock2=325 munlock=150 munlockall=152 pkey_mprotect=329 pkey_alloc=330 pkey_free=331
        membarrier=324 get_mempolicy=239
    """,
    "processes and threads": """
        fork=57 vfork=58 execve=59 execveat=322 exit=60 exit_group=231 wait4=61 waitid=247
        kill=62 tkill=200 tgkill=234 getpid=39 getppid=110 gettid=186 setsid=112 getsid=124
        setpgid=109 getpgid=121 getpgrp=111 set_tid_address=218 set_robust_list=273
        get_robust_list=274 futex=202 futex_waitv=449 rseq=334 arch_prctl=158 prctl=157
        sched_yield=24 sched_getaffinity=204 sched_setaffinity=203 sched_getparam=143
        sched_setparam=142 sched_getscheduler=145 sched_setscheduler=144
        sched_get_priority_max=146 sched_get_priority_min=147 sched_rr_get_interval=148
        sched_getattr=315 sched_setattr=314 getpriority=140 setpriority=141 ioprio_get=252
        ioprio_set=251 getrlimit=97 setrlimit=160 prlimit64=302 getrusage=98 times=100
        pidfd_open=434 pidfd_send_signal=424 getcpu=309 capget=125 restart_syscall=219
    """,
    "identity (each change needs a capability the child has lost)": """
        getuid=102 geteuid=107 getgid=104 getegid=108 getresuid=118 getresgid=120
        getgroups=115 setuid=105 setgid=106 setreuid=113 setregid=114 setresuid=117
        setresgid=119 setfsuid=122 setfsgid=123 setgroups=116 capset=126
    """,
    "signals and time": """
        rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 rt_sigpending=127
        rt_sigtimedwait=128 rt_sigqueueinfo=129 rt_tgsigqueueinfo=297 rt_sigsuspend=130
        sigaltstack=131 pause=34 alarm=37 getitimer=36 setitimer=38 nanosleep=35
        clock_nanosleep=230 clock_gettime=228 clock_getres=229 gettimeofday=96 time=201
        timer_create=222 timer_settime=223 timer_gettime=224 timer_getoverrun=225
        timer_delete=226 timerfd_create=283 timerfd_settime=286 timerfd_gettime=287
        signalfd=282 signalfd4=289
    """,
    "waiting": """
        poll=7 ppoll=271 select=23 pselect6=270 epoll_create=213 epoll_create1=291
        epoll_ctl=233 epoll_ctl_old=214 epoll_wait=232 epoll_wait_old=215 epoll_pwait=281
        epoll_pwait2=441 eventfd=284 eventfd2=290 pipe=22 pipe2=293 inotify_init=253
        inotify_init1=294 inotify_add_watch=254 inotify_rm_watch=255
    """,
    "sockets (the family is checked apart)": """
        socketpair=53 bind=49 connect=42 listen=50 accept=43 accept4=288 getsockname=51
        getpeername=52 sendto=44 recvfrom=45 sendmsg=46 recvmsg=47 sendmmsg=307 recvmmsg=299
        shutdown=48 setsockopt=54 getsockopt=55
    """,
    "the machine": """
        uname=63 sysinfo=99 getrandom=318
    """,
}
"""`name=number` of each call that may be made, by what the call is for."""

ALLOWED: dict[str, int] = {
    name: int(number)
    for calls in _BY_PURPOSE.values()
    for name, number in (call.split("=") for call in calls.split())
}
"""The number of each call that may be made, by name."""
