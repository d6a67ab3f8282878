"""Isolates a slot, once: root file system, identity, limits, system-call filter.

The order matters. Namespaces come first (the supervisor has entered them), then the root file
system while mounting is still allowed, then limits, and the system-call filter last, since it takes
away what the earlier steps need.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import struct

from ..run.plan import DOCKER, LANDLOCK, ROOT, UNSAFE, USERNS, JailPlan
from . import policy, syscalls as sc

_STAGING = ("/sys", "/mnt", "/tmp")
"""The folder in which the new root is assembled: a folder that every host has and no program needs
to see.
"""

_READ = 0b1101  # Landlock: execute, read file, read directory
_WRITE = 0xFFFF
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40


def namespaces(tier: str) -> int:
    """Return the kinds of namespaces in which a slot of this tier lives, as flags."""
    shared = sc.CLONE_NEWNS | sc.CLONE_NEWPID | sc.CLONE_NEWNET | sc.CLONE_NEWIPC | sc.CLONE_NEWUTS
    return {ROOT: shared, USERNS: shared | sc.CLONE_NEWUSER}.get(tier, 0)


def enter_namespaces(plan: JailPlan) -> None:
    """Leave the host's namespaces; the pid namespace begins with the next fork."""
    uid, gid = os.getuid(), os.getgid()
    if flags := namespaces(plan.tier):
        sc.unshare(flags)
    if plan.tier == USERNS:
        # Keep the caller's own ids: without an id 0 inside, no `execve` can give a capability
        # back. The kernel lets an ordinary user map a group only once `setgroups` is denied.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")


def build(plan: JailPlan) -> None:
    """Isolate this process for good. Call in the slot, which is PID 1 where the tier has a pid
    namespace.

    Raises:
        OSError: a step was refused; the slot must not serve.
    """
    # A 0 stands for the calling process. The slot joins first, while it still sees these files.
    for procs in plan.cgroup_procs:
        _write(procs, "0")
    # Not before the slot has joined: a cgroup namespace shows the group of this moment as its root.
    if namespaces(plan.tier):
        sc.unshare(sc.CLONE_NEWCGROUP)
    # The kernel protects PID 1 from the signals of its own namespace, except from those that have a
    # handler (decision 0404).
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if plan.tier == UNSAFE:
        os.chdir(plan.work)
        sc.prctl(sc.PR_SET_CHILD_SUBREAPER, 1)
        sc.prctl(sc.PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    sc.prctl(sc.PR_SET_CHILD_SUBREAPER, 1)
    # No setuid program gains rights; seccomp and Landlock ask for this promise.
    sc.prctl(sc.PR_SET_NO_NEW_PRIVS, 1)
    if plan.tier in (ROOT, USERNS):
        _build_root(plan)
        socket.sethostname(policy.HOSTNAME)
        if plan.network:
            # `lo` is the only interface of this network namespace, and is down at first.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                request = struct.pack("16sh14x", b"lo", _IFF_UP | _IFF_RUNNING)
                fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)
    if plan.tier == DOCKER:
        if not os.path.lexists(policy.SHARED):
            os.symlink(policy.WORK, policy.SHARED)
        # Some runtimes give a mount the mode of the image's folder, and not the mode asked for.
        for folder in policy.CONTAINER_FOLDERS:
            os.chmod(folder, 0o1777)
        os.chdir(policy.WORK)
    _limit(plan)
    _give_up_identity(plan)
    # The kernel clears this setting when the identity changes, so it comes after that. The first
    # process of a container has no parent of ours. A slot without a pid namespace ends its
    # processes itself when it gets SIGTERM.
    if plan.tier != DOCKER:
        sc.prctl(sc.PR_SET_PDEATHSIG, signal.SIGTERM if plan.tier == LANDLOCK else signal.SIGKILL)
    if plan.tier == LANDLOCK:
        _restrict_files(plan)
    filter_ = policy.seccomp_program(
        mounts=plan.tier in (ROOT, USERNS),
        named_sockets=plan.tier != LANDLOCK,
        network=plan.network,
        shared_identity=plan.strangers or plan.uid == os.getuid(),
        memory_counted=plan.address_space_bytes == 0,
    )
    # The filter comes last: it refuses what the steps before it needed.
    sc.install_seccomp(filter_)
    sc.prctl(sc.PR_SET_DUMPABLE, 0)  # no program of the same identity may trace the slot


def renew_work(plan: JailPlan) -> None:
    """Replace the work directory by an empty directory, whatever a program left inside.

    Tiers without a mount namespace are left alone; `emptying` clears their directory.
    """
    if plan.tier in (LANDLOCK, UNSAFE):
        return
    os.chdir("/")
    sc.unmount(policy.WORK)
    _mount_work(plan, policy.WORK)
    os.chdir(policy.WORK)


def _mount_work(plan: JailPlan, target: str) -> None:
    options = f"mode=1777,size={plan.disk_bytes},nr_inodes={plan.disk_inodes}"
    sc.mount("work", target, "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, options)


def _build_root(plan: JailPlan) -> None:
    # Private mounts do not propagate, so nothing below reaches the host's mount namespace.
    sc.mount("none", "/", "", sc.MS_REC | sc.MS_PRIVATE)
    root = next(place for place in _STAGING if os.path.isdir(place))
    sc.mount("root", root, "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, "mode=755,size=1m,nr_inodes=2048")
    for place in plan.readable:
        _bind(place, root, place)
    for place in plan.hidden:
        flags = sc.MS_NOSUID | sc.MS_NODEV | sc.MS_RDONLY
        sc.mount("hidden", root + place, "tmpfs", flags, "size=4k")
    for place in plan.packages:
        _bind(place, root, f"{policy.PACKAGES}/{os.path.basename(place)}")
    # Show /bin, /sbin, /lib and /lib64: links into /usr on a merged system, else real folders.
    for name in ("/bin", "/sbin", "/lib", "/lib64"):
        if os.path.islink(name):
            os.symlink(os.readlink(name), root + name)
        elif os.path.isdir(name):
            _bind(name, root, name)
    os.makedirs(root + "/etc", exist_ok=True)  # certificates may have been bound there already
    for name, text in policy.ETC_FILES.items():
        _write(f"{root}/etc/{name}", text.format(uid=plan.uid, gid=plan.gid))
    for name in policy.ETC_FROM_HOST:
        if os.path.exists("/etc/" + name):
            _bind("/etc/" + name, root, "/etc/" + name)
    _fill_dev(root)
    os.mkdir(root + policy.BRANCHES, 0o711)
    os.mkdir(root + policy.WORK)
    _mount_work(plan, root + policy.WORK)
    os.symlink(policy.WORK, root + "/tmp")
    # Mount a read-only /proc of this pid namespace, without kernel settings.
    # A program sees only its own processes there. It must not be able to write to /proc: a program
    # that lowers its own weight there makes the kernel kill the slot instead when memory runs out.
    os.mkdir(root + "/proc")
    flags = sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC | sc.MS_RDONLY
    sc.mount("proc", root + "/proc", "proc", flags, "subset=pid,hidepid=invisible")
    os.chdir(root)
    # With both on the same path, the old root lies on top of the new root, and one unmount removes
    # it.
    sc.pivot_root(".", ".")
    sc.unmount(".")
    # Read-only only now, since every step before created files in the new root.
    sc.restrict_mount("/", sc.MOUNT_ATTR_RDONLY, recursive=False)
    os.chdir(policy.WORK)


def _bind(source: str, root: str, place: str) -> None:
    """Show `source` read-only as `place` below `root`."""
    if os.path.lexists(root + place):
        return  # already visible as part of a folder that was bound before
    target = root + place
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
    sc.mount(source, target, "", sc.MS_BIND | sc.MS_REC)
    attributes = sc.MOUNT_ATTR_RDONLY | sc.MOUNT_ATTR_NOSUID | sc.MOUNT_ATTR_NODEV
    sc.restrict_mount(target, attributes, recursive=True)


def _fill_dev(root: str) -> None:
    os.mkdir(root + "/dev")
    for name in policy.DEVICES:
        target = f"{root}/dev/{name}"
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o666))
        # Bound from the host, since device nodes cannot be made in a user namespace.
        sc.mount("/dev/" + name, target, "", sc.MS_BIND)
    os.symlink(policy.WORK, root + "/dev/shm")
    os.symlink("/proc/self/fd", root + "/dev/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")


def _limit(plan: JailPlan) -> None:
    limits = [(resource.RLIMIT_NOFILE, policy.DESCRIPTORS), (resource.RLIMIT_CORE, 0)]
    if plan.tier == LANDLOCK:
        limits.append((resource.RLIMIT_FSIZE, plan.disk_bytes))
    if plan.processes:
        limits.append((resource.RLIMIT_NPROC, plan.processes))
    if plan.address_space_bytes:
        limits.append((resource.RLIMIT_AS, plan.address_space_bytes))
    for resource_number, value in limits:
        hard = resource.getrlimit(resource_number)[1]
        # A lower limit of the host stays: raising a hard limit needs a capability.
        lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(resource_number, (lowest, lowest))


def _give_up_identity(plan: JailPlan) -> None:
    """Give up the group and supplementary groups.

    The user id is changed in each child, so that the slot can still kill the child.
    """
    if plan.tier == USERNS or os.getuid() != 0:
        return
    os.setgroups([])
    os.setresgid(plan.gid, plan.gid, plan.gid)
    sc.drop_bounding_set()


def _restrict_files(plan: JailPlan) -> None:
    version = sc.landlock_version()
    if version < 6:
        raise OSError(
            f"Landlock ABI {version} has no signal and socket scopes; 6 (Linux 6.12) is needed"
        )
    # The bits are rights of Landlock: execute 1, write 2, read a file 4, list a folder 8. The rule
    # of a file may not have the right to list.
    allowed = [
        (place, _READ if os.path.isdir(place) else 0b101)
        for place in [*_without_hidden(plan), *plan.packages]
    ]
    # Imports list the folder of a package, but must not read its neighbours.
    allowed += [(os.path.dirname(place), 0b1000) for place in [*plan.packages, *plan.hidden]]
    allowed += [("/dev/" + name, 0b110) for name in policy.DEVICES]
    allowed.append((plan.work, _WRITE))
    os.chdir(plan.work)
    sc.landlock_restrict(_WRITE, allowed, network=3, scoped=3)
    try:
        # The supervisor is outside the domain, so a working scope refuses this signal.
        os.kill(os.getppid(), 0)
    except PermissionError:
        return
    raise OSError("Landlock does not hold back signals here, so a slot cannot end its runs safely")


def _without_hidden(plan: JailPlan) -> list[str]:
    """Return the readable places, with the entries of a folder that holds a hidden one in its
    place: a rule of Landlock is for all that is below.
    """
    holders = {os.path.dirname(place) for place in plan.hidden}
    return [
        place
        for readable in plan.readable
        for place in (
            [os.path.join(readable, name) for name in os.listdir(readable)]
            if readable in holders
            else [readable]
        )
        if place not in plan.hidden
    ]


def _write(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)


def package_folders(plan: JailPlan) -> list[str]:
    """Return what `sys.path` needs so that the allowed packages can be imported."""
    if plan.own_packages:
        import site  # imported only here, to keep other slots small

        return site.getsitepackages()
    if plan.tier in (ROOT, USERNS, DOCKER):
        return [policy.PACKAGES]
    return sorted({os.path.dirname(package) for package in plan.packages})
