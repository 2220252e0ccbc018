"""mpirun as tests start it: on one machine, as root too, sharing processors."""
import os

from command import AVOCET

SKIPPED = 77
# Root is refused without the first two; the others keep ranks off the network and let them share
# processors.
SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_btl": "self,vader", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_plm": "isolated",
            "OMPI_MCA_btl_base_warn_component_unused": "0",
            # Open MPI keeps some of its memory when a process ends; tests/device/ranks.c looks for
            # leaks of ours.
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def environment():
    return {**os.environ, **SETTINGS}


def under_mpi(ranks, *arguments):
    return ["mpirun", "-n", str(ranks), AVOCET, *map(str, arguments)]
