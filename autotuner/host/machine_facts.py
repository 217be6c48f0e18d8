"""The facts about this machine and its software that trials record; collecting them does not import torch.

The ranks of trials, the nodes of an engine and the service itself all read their facts here. Each fact has one name and
is read in one way, so that two machines, or the same machine at two times, can be compared.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
import re
import socket
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

IMAGE = "AUTOTUNER_CONTAINER_IMAGE"
"""Environment variable that names the container image of a process, because few runtimes show it to their
containers."""

_PACKAGES = (
    "torch",
    "triton",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-cublas-cu12",
    "nvidia-cublas",
    "transformer-engine",
    "flash-attn",
    "megatron-core",
    "deepspeed",
)
"""Packages whose versions are recorded because they do the work of a step; packages that are not installed are left
out."""

ALSO_RECORDED = "AUTOTUNER_ALSO_RECORDED"
"""Environment variable in which an operator lists more variables to record with every measurement, separated by
commas."""

_LONGEST = 200
"""Maximum number of characters kept of one variable's value."""

# Which variables of libraries are recorded with a measurement: those that are known to change what a step takes.
#
# Each variable is listed by its full name, so that no other variable of the machine is ever recorded. Names are those
# of the libraries' documentation and code, of places, addresses and secrets none.

_BY_PREFIX = {
    "NCCL_": """
        ALGO PROTO NTHREADS MIN_NCHANNELS MAX_NCHANNELS MIN_CTAS MAX_CTAS BUFFSIZE LL_BUFFSIZE LL128_BUFFSIZE
        P2P_DISABLE P2P_LEVEL P2P_DIRECT_DISABLE P2P_NET_CHUNKSIZE P2P_PCI_CHUNKSIZE P2P_NVL_CHUNKSIZE
        NCHANNELS_PER_NET_PEER MAX_P2P_NCHANNELS MIN_P2P_NCHANNELS SHM_DISABLE SOCKET_IFNAME SOCKET_FAMILY
        SOCKET_NTHREADS NSOCKS_PERTHREAD IB_DISABLE IB_HCA IB_TIMEOUT IB_RETRY_CNT IB_GID_INDEX IB_SL IB_TC
        IB_QPS_PER_CONNECTION IB_SPLIT_DATA_ON_QPS IB_ADAPTIVE_ROUTING IB_PCI_RELAXED_ORDERING IB_CUDA_SUPPORT
        IB_MERGE_NICS OOB_NET_ENABLE CROSS_NIC NET NET_PLUGIN NET_GDR_LEVEL NET_GDR_READ NET_SHARED_BUFFERS
        NET_SHARED_COMMS GDRCOPY_ENABLE DMABUF_ENABLE COLLNET_ENABLE COLLNET_NODE_THRESHOLD NVLS_ENABLE
        NVLS_NCHANNELS NVLS_CHUNKSIZE NVB_DISABLE MNNVL_ENABLE PXN_DISABLE PXN_C2C P2P_PXN_LEVEL TUNER_PLUGIN
        LAUNCH_MODE LAUNCH_ORDER_IMPLICIT GRAPH_MIXING_SUPPORT GRAPH_REGISTER LOCAL_REGISTER
        LEGACY_CUDA_REGISTER CUMEM_ENABLE CUMEM_HOST_ENABLE WIN_ENABLE SET_THREAD_NAME SET_STACK_SIZE
        IGNORE_CPU_AFFINITY CHECKS_DISABLE CHECK_POINTERS COMM_BLOCKING CGA_CLUSTER_SIZE WORK_FIFO_DEPTH
        WORK_FIFO_BYTES RUNTIME_CONNECT SINGLE_RING_THRESHOLD TOPO_DUMP_RANK DEBUG DEBUG_SUBSYS RAS_ENABLE
        THREAD_THRESHOLDS""",
    "TORCH_": """
        NCCL_ASYNC_ERROR_HANDLING NCCL_BLOCKING_WAIT NCCL_AVOID_RECORD_STREAMS NCCL_HIGH_PRIORITY
        NCCL_CUDA_EVENT_CACHE NCCL_ENABLE_MONITORING NCCL_HEARTBEAT_TIMEOUT_SEC NCCL_ENABLE_TIMING
        NCCL_NAN_CHECK NCCL_TRACE_BUFFER_SIZE NCCL_USE_COMM_NONBLOCKING
        NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK SYMMMEM DISTRIBUTED_DEBUG CUDNN_V8_API_DISABLED
        CUDNN_V8_API_LRU_CACHE_LIMIT CUDNN_SDPA_ENABLED CUDNN_SDPA_PREFERRED ALLOW_TF32_CUBLAS_OVERRIDE
        BLAS_PREFER_CUBLASLT BLAS_PREFER_HIPBLASLT COMPILE_DISABLE COMPILE_DEBUG LOGS SHOW_CPP_STACKTRACES
        LINALG_PREFER_CUSOLVER""",
    "TORCHINDUCTOR_": """
        MAX_AUTOTUNE MAX_AUTOTUNE_GEMM MAX_AUTOTUNE_POINTWISE MAX_AUTOTUNE_GEMM_BACKENDS
        COORDINATE_DESCENT_TUNING CPP_WRAPPER CUDAGRAPHS FREEZING COMPILE_THREADS FX_GRAPH_CACHE
        FX_GRAPH_REMOTE_CACHE AUTOTUNE_REMOTE_CACHE FORCE_DISABLE_CACHES REORDER_FOR_COMPUTE_COMM_OVERLAP
        SHAPE_PADDING UNIQUE_KERNEL_NAMES""",
    "CUDA_": """
        VISIBLE_DEVICES DEVICE_ORDER DEVICE_MAX_CONNECTIONS DEVICE_MAX_COPY_CONNECTIONS LAUNCH_BLOCKING
        MODULE_LOADING MODULE_DATA_LOADING AUTO_BOOST CACHE_DISABLE CACHE_MAXSIZE FORCE_PTX_JIT
        DISABLE_PTX_JIT MPS_ACTIVE_THREAD_PERCENTAGE MPS_PINNED_DEVICE_MEM_LIMIT SCALE_LAUNCH_QUEUES
        MANAGED_FORCE_DEVICE_ALLOC GRAPHS_USE_NODE_PRIORITY""",
    "PYTORCH_": "CUDA_ALLOC_CONF ALLOC_CONF HIP_ALLOC_CONF NO_CUDA_MEMORY_CACHING",
    "CUBLAS_": "WORKSPACE_CONFIG EMULATE_DOUBLE_PRECISION EMULATE_SINGLE_PRECISION EMULATION_STRATEGY",
    "CUBLASLT_": "WORKSPACE_SIZE HEURISTICS_CACHE_CAPACITY",
    "CUDNN_": "CONV_WSCAP_DBG LOGINFO_DBG LOGLEVEL_DBG",
    "NVIDIA_": "TF32_OVERRIDE",
    "NVTE_": """
        FLASH_ATTN FUSED_ATTN UNFUSED_ATTN FUSED_ATTN_BACKEND FUSED_ATTN_USE_FAv2_BWD
        ALLOW_NONDETERMINISTIC_ALGO APPLY_QK_LAYER_SCALING FWD_LAYERNORM_SM_MARGIN BWD_LAYERNORM_SM_MARGIN
        INF_LAYERNORM_SM_MARGIN NORM_FWD_USE_CUDNN NORM_BWD_USE_CUDNN CUDA_GRAPH TORCH_COMPILE
        BIAS_GELU_NVFUSION BIAS_DROPOUT_FUSION BATCH_MHA_P2P_COMM UB_SPLIT_RS UB_SPLIT_AG UB_ATOMIC_GEMM_RS
        UB_ATOMIC_GEMM_AG UBDEBUG DEBUG DEBUG_LEVEL DPA_FP8CS_RECIPE USE_CUTLASS_GROUPED_GEMM USE_FAST_MATH""",
    "TRITON_": "ALWAYS_COMPILE INTERPRET DISABLE_LINE_INFO PRINT_AUTOTUNING CACHE_AUTOTUNING DEFAULT_FP_FUSION",
    "OMP_": """
        NUM_THREADS PROC_BIND PLACES DYNAMIC SCHEDULE STACKSIZE WAIT_POLICY THREAD_LIMIT MAX_ACTIVE_LEVELS
        NESTED CANCELLATION""",
    "GOMP_": "CPU_AFFINITY SPINCOUNT STACKSIZE",
    "KMP_": "AFFINITY BLOCKTIME HW_SUBSET LIBRARY SETTINGS STACKSIZE TPAUSE",
    "MKL_": "NUM_THREADS DYNAMIC CBWR ENABLE_INSTRUCTIONS DEBUG_CPU_TYPE THREADING_LAYER INTERFACE_LAYER VERBOSE",
    "OPENBLAS_": "NUM_THREADS CORETYPE MAIN_FREE VERBOSE",
    "ONEDNN_": "MAX_CPU_ISA CPU_ISA_HINTS DEFAULT_FPMATH_MODE PRIMITIVE_CACHE_CAPACITY VERBOSE",
    "DNNL_": "MAX_CPU_ISA CPU_ISA_HINTS DEFAULT_FPMATH_MODE PRIMITIVE_CACHE_CAPACITY VERBOSE",
    "GLOO_": "SOCKET_IFNAME DEVICE_TRANSPORT",
    "UCX_": """
        TLS NET_DEVICES MAX_RNDV_RAILS MAX_EAGER_RAILS RNDV_SCHEME RNDV_THRESH ZCOPY_THRESH BCOPY_THRESH
        IB_GPU_DIRECT_RDMA IB_SL IB_TRAFFIC_CLASS IB_GID_INDEX IB_PCI_RELAXED_ORDERING IB_AR_ENABLE RC_TIMEOUT
        RC_RETRY_COUNT CUDA_COPY_DMABUF CUDA_COPY_MAX_REG_RATIO CUDA_IPC_CACHE MEMTYPE_CACHE PROTO_ENABLE
        POSIX_USE_PROC_LINK LOG_LEVEL""",
    "FI_": """
        PROVIDER EFA_USE_DEVICE_RDMA EFA_FORK_SAFE EFA_ENABLE_SHM_TRANSFER EFA_SET_CUDA_SYNC_MEMOPS
        HMEM_CUDA_USE_GDRCOPY HMEM_DISABLE_P2P CXI_DEFAULT_CQ_SIZE CXI_RX_MATCH_MODE CXI_RDZV_THRESHOLD
        CXI_RDZV_PROTO CXI_DISABLE_HOST_REGISTER CXI_TELEMETRY MR_CACHE_MONITOR MR_CACHE_MAX_COUNT
        MR_CACHE_MAX_SIZE LOG_LEVEL""",
    "MALLOC_": "ARENA_MAX ARENA_TEST MMAP_MAX_ MMAP_THRESHOLD_ TRIM_THRESHOLD_ TOP_PAD_ CHECK_ PERTURB_ CONF",
}

RECORDED = frozenset(prefix + name for prefix, names in _BY_PREFIX.items() for name in names.split())
"""Recorded variables of NCCL, PyTorch with its compiler and allocator, CUDA and its libraries, Transformer Engine,
gloo, OpenMP, the CPU libraries, the two fabrics under NCCL, and C's allocator."""


def software_facts() -> dict[str, str]:
    """Return versions by name: of Python, of the packages that trials record, and of the system (``system_facts``)."""
    return {"python": platform.python_version(), **_packages(), **system_facts()}


def system_facts() -> dict[str, str]:
    """Return the versions of the driver, kernel, operating system and C library, and the name of the container image.

    Unknown facts are left out.
    """
    facts = {
        "driver": driver_version(),
        "container_image": _image(os.environ),
        "kernel": platform.release(),
        "os": _system(),
        "libc": "-".join(platform.libc_ver()).strip("-"),
    }
    return {name: value for name, value in facts.items() if value}


def hardware_facts() -> dict[str, str]:
    """Return a hash of the machine's name, and facts about its CPU and its settings; unknown facts are left out.

    Facts about accelerators are not included, because a trial reads them from the driver.
    """
    cpu = Path("/sys/devices/system/cpu")
    facts = {
        "host": host_hash(),
        "cpu": cpu_name(),
        "cpus": str(os.cpu_count() or ""),
        "cpu_quota": _quota(),
        "cpu_governor": ",".join(sorted({_text(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_governor")})),
        "cpu_max_mhz": _lowest_mhz(cpu),
        "cpu_boost": _text(cpu / "cpufreq/boost"),
        "cpu_no_turbo": _text(cpu / "intel_pstate/no_turbo"),
        "smt": _text(cpu / "smt/active"),
        "huge_pages": _chosen(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "niceness": str(os.getpriority(os.PRIO_PROCESS, 0)),
    }
    return {name: value for name, value in facts.items() if value}


def host_hash() -> str:
    """Return a hash of this machine's name, which identifies the machine in measurements without revealing the name.

    The hash is keyed with the machine id. Without the key, anybody with a list of names could find the name of this
    machine.
    """
    return hmac.new(_machine_id(), socket.gethostname().encode(), hashlib.sha256).hexdigest()[:12]


def is_this_host(name_hash: str) -> bool:
    """Return True if the hash identifies this machine (see ``host_hash``).

    Older versions of the product stored hashes without a key; such a hash is recognised, too.

    Args:
        name_hash: The hash of a machine's name.
    """
    return name_hash in (host_hash(), hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12])


def cpu_name() -> str:
    """Return the model name of the CPU as the kernel gives it; empty if the kernel gives none."""
    lines = _text(Path("/proc/cpuinfo")).splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def settings_of_libraries(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that change how libraries work, to be stored with a measurement.

    Variables that the operator chose to record are included. Variables whose value is a URL are left out.
    """
    named = RECORDED.union(os.environ.get(ALSO_RECORDED, "").split(","))
    return {name: value[:_LONGEST] for name, value in sorted(variables.items()) if name in named and "://" not in value}


def _machine_id() -> bytes:
    """Return the machine id that systemd or D-Bus created; empty if there is none, as in many images.

    Source: machine-id(5). It asks programs to publish only a keyed hash of the id, never the id itself.
    """
    return (_text(Path("/etc/machine-id")) or _text(Path("/var/lib/dbus/machine-id"))).encode()


def _packages() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def driver_version(folder: Path = Path("/")) -> str:
    """Return the version of NVIDIA's kernel module; empty if it is not loaded.

    ``folder`` is the root of the file system to read.

    Source: README of NVIDIA's Linux driver, chapter on the /proc file system. With the open kernel modules, the version
    stands after the architecture.
    """
    if version := _text(folder / "sys/module/nvidia/version"):
        return version
    found = re.search(
        r"Kernel Module\D+(?:x86_64|aarch64)?\s+(\d+(?:\.\d+)+)", _text(folder / "proc/driver/nvidia/version")
    )
    return found.group(1) if found else ""


def _image(variables: Mapping[str, str]) -> str:
    """Return the container image that the operator or the engine names, else the image that its files name."""
    if said := variables.get(IMAGE):
        return said
    if found := re.search(r'^imageid="(\w+)"', _text(Path("/run/.containerenv")), re.MULTILINE):
        return found.group(1)
    if file := variables.get("APPTAINER_CONTAINER") or variables.get("SINGULARITY_CONTAINER"):
        return Path(file).name
    return " ".join(filter(None, (variables.get("NVIDIA_PRODUCT_NAME"), variables.get("NVIDIA_BUILD_ID"))))


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.system()


def _quota() -> str:
    """Return the number of cores whose time the control group may use; empty without a limit.

    Source: cgroup-v2.rst of the kernel, ``cpu.max``: quota and period in microseconds, or ``max``.
    """
    quota, _, period = _text(Path("/sys/fs/cgroup/cpu.max")).partition(" ")
    return f"{int(quota) / int(period):g}" if quota.isdecimal() and period.isdecimal() else ""


def _lowest_mhz(cpu: Path) -> str:
    """Return the lowest of all cores' maximum clocks in MHz, since ranks wait for the slowest core.

    Empty if unknown.
    """
    limits = [_text(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_max_freq")]
    khz = [int(limit) for limit in limits if limit.isdecimal()]
    return str(min(khz) // 1000) if khz else ""


def _chosen(path: Path) -> str:
    """Return the word in brackets in a kernel file: the kernel marks the active one of several settings in this way."""
    found = re.search(r"\[(\w+)\]", _text(path))
    return found.group(1) if found else ""


def _text(path: Path) -> str:
    """Return the text of a kernel file without surrounding white space; empty if the file is missing or unreadable."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
