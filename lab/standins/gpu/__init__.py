"""GPUs for show: one description feeds the stand-in kernel module, NVML library and nvidia-smi."""
