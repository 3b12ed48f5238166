// SPDX-License-Identifier: MIT
/*
 * A stand-in for the NVIDIA kernel module. It claims the emulator's `edu` devices, shows them with a GPU's ids, makes the files of
 * /proc/driver/nvidia and the device files, and gives out memory strictly on one node, as the real module does for cuMem.
 * It drives no GPU. Built with -DSTANDIN_VERSION="\"580.95.05\"".
 */
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/wait.h>

#define MAJOR_NUMBER 195
#define CONTROL_MINOR 255
#define MOST_GPUS 16
#define GPU_VENDOR 0x10de
#define GPU_DEVICE 0x2bb5
#define GPU_CLASS 0x030200

struct gpu {
	struct pci_dev *pdev;
	unsigned short vendor, device;
	unsigned int class;
	struct proc_dir_entry *dir;
};

/* One open of /dev/nvidiactl is one allocation; the first mapping makes it, its offset in pages is the node. */
struct allocation {
	struct mutex lock;
	unsigned long count;
	struct page **pages;
};

static struct gpu gpus[MOST_GPUS];
/* The devices' places at load, in order of address: minors are numbered by it, however the bus is walked. */
static unsigned int places[MOST_GPUS];
static int place_count;
static struct class *device_class;
static struct proc_dir_entry *proc_root, *proc_gpus;

/* `echo 1 >/sys/module/nvidia/parameters/hang`: whoever opens a device waits in the kernel, unkillable, until it is 0 again. */
static bool hang;
static DECLARE_WAIT_QUEUE_HEAD(hanging);

static int set_hang(const char *text, const struct kernel_param *parameter)
{
	int error = param_set_bool(text, parameter);

	wake_up_all(&hanging);
	return error;
}

static const struct kernel_param_ops hang_operations = { .set = set_hang, .get = param_get_bool };
module_param_cb(hang, &hang_operations, &hang, 0644);

static int control_open(struct inode *inode, struct file *file)
{
	struct allocation *own;

	wait_event(hanging, !READ_ONCE(hang));
	own = kzalloc(sizeof(*own), GFP_KERNEL);
	if (!own)
		return -ENOMEM;
	mutex_init(&own->lock);
	file->private_data = own;
	return 0;
}

static int control_release(struct inode *inode, struct file *file)
{
	struct allocation *own = file->private_data;
	unsigned long at;

	for (at = 0; at < own->count; at++)
		if (own->pages[at])
			__free_page(own->pages[at]);
	kvfree(own->pages);
	kfree(own);
	return 0;
}

static int make_pages(struct allocation *own, unsigned long count, unsigned long node)
{
	unsigned long at;

	if (node >= MAX_NUMNODES || !node_state(node, N_MEMORY))
		return -EINVAL;
	own->pages = kvcalloc(count, sizeof(*own->pages), GFP_KERNEL);
	if (!own->pages)
		return -ENOMEM;
	own->count = count;
	for (at = 0; at < count; at++) {
		/* Strictly there or not at all, like the real module (kernel-open/nvidia/nv-vm.c). */
		own->pages[at] = alloc_pages_node(node, GFP_KERNEL | __GFP_ZERO | __GFP_THISNODE, 0);
		if (!own->pages[at])
			return -ENOMEM;
	}
	return 0;
}

static int control_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct allocation *own = file->private_data;
	unsigned long at, count = vma_pages(vma);
	int error = 0;

	if (file->f_path.dentry->d_inode->i_rdev != MKDEV(MAJOR_NUMBER, CONTROL_MINOR))
		return -ENODEV;
	mutex_lock(&own->lock);
	if (!own->pages)
		error = make_pages(own, count, vma->vm_pgoff);
	if (!error && count > own->count)
		error = -EINVAL;
	for (at = 0; !error && at < count; at++)
		error = vm_insert_page(vma, vma->vm_start + at * PAGE_SIZE, own->pages[at]);
	mutex_unlock(&own->lock);
	return error;
}

static const struct file_operations device_operations = {
	.owner = THIS_MODULE,
	.open = control_open,
	.release = control_release,
	.mmap = control_mmap,
};

static char *device_mode(const struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = 0666;
	return NULL;
}

static int version_show(struct seq_file *out, void *unused)
{
	seq_puts(out, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " STANDIN_VERSION "  Release Build  (nearsocket stand-in)\n");
	seq_puts(out, "GCC version:  stand-in, no GPU behind it\n");
	return 0;
}

static int params_show(struct seq_file *out, void *unused)
{
	seq_puts(out, "ModifyDeviceFiles: 1\nDeviceFileMode: 438\nNvLinkDisable: 0\nCreateImexChannel0: 0\n");
	return 0;
}

static int information_show(struct seq_file *out, void *unused)
{
	struct gpu *gpu = out->private;
	int minor = gpu - gpus;

	seq_puts(out, "Model: \t\t NVIDIA RTX PRO 6000 Blackwell Server Edition (stand-in)\n");
	seq_printf(out, "IRQ:   \t\t %u\n", gpu->pdev->irq);
	seq_printf(out, "GPU UUID: \t GPU-00000000-0000-0000-0000-%012d\n", minor);
	seq_puts(out, "Bus Type: \t PCIe\n");
	seq_printf(out, "Bus Location: \t %s\n", pci_name(gpu->pdev));
	seq_printf(out, "Device Minor: \t %d\n", minor);
	seq_puts(out, "GPU Firmware: \t " STANDIN_VERSION "\nGPU Excluded:\t No\n");
	return 0;
}

static unsigned int place_of(struct pci_dev *pdev)
{
	return pci_domain_nr(pdev->bus) << 16 | pdev->bus->number << 8 | pdev->devfn;
}

static int compare_places(const void *one, const void *other)
{
	unsigned int a = *(const unsigned int *)one, b = *(const unsigned int *)other;

	return a < b ? -1 : a > b;
}

static void find_places(void)
{
	struct pci_dev *pdev = NULL;

	while ((pdev = pci_get_device(0x1234, 0x11e8, pdev)) && place_count < MOST_GPUS)
		places[place_count++] = place_of(pdev);
	pci_dev_put(pdev);
	sort(places, place_count, sizeof(*places), compare_places, NULL);
}

static int gpu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct gpu *gpu;
	int minor = 0;

	while (minor < place_count && places[minor] != place_of(pdev))
		minor++;
	if (minor == place_count)
		return -ENODEV;
	gpu = &gpus[minor];
	*gpu = (struct gpu){ .pdev = pdev, .vendor = pdev->vendor, .device = pdev->device, .class = pdev->class };
	pdev->vendor = GPU_VENDOR;
	pdev->device = GPU_DEVICE;
	pdev->class = GPU_CLASS;
	gpu->dir = proc_mkdir(pci_name(pdev), proc_gpus);
	if (gpu->dir)
		proc_create_single_data("information", 0444, gpu->dir, information_show, gpu);
	device_create(device_class, NULL, MKDEV(MAJOR_NUMBER, minor), NULL, "nvidia%d", minor);
	pci_set_drvdata(pdev, gpu);
	return 0;
}

static void gpu_remove(struct pci_dev *pdev)
{
	struct gpu *gpu = pci_get_drvdata(pdev);

	device_destroy(device_class, MKDEV(MAJOR_NUMBER, gpu - gpus));
	proc_remove(gpu->dir);
	pdev->vendor = gpu->vendor;
	pdev->device = gpu->device;
	pdev->class = gpu->class;
}

static const struct pci_device_id ids[] = { { PCI_DEVICE(0x1234, 0x11e8) }, { 0 } };
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver driver = { .name = "nvidia", .id_table = ids, .probe = gpu_probe, .remove = gpu_remove };

static int __init standin_init(void)
{
	int error = __register_chrdev(MAJOR_NUMBER, 0, 256, "nvidia", &device_operations);

	if (error < 0)
		return error;
	device_class = class_create("nvidia");
	if (IS_ERR(device_class)) {
		__unregister_chrdev(MAJOR_NUMBER, 0, 256, "nvidia");
		return PTR_ERR(device_class);
	}
	device_class->devnode = device_mode;
	device_create(device_class, NULL, MKDEV(MAJOR_NUMBER, CONTROL_MINOR), NULL, "nvidiactl");
	proc_root = proc_mkdir("driver/nvidia", NULL);
	proc_gpus = proc_mkdir("gpus", proc_root);
	proc_create_single("version", 0444, proc_root, version_show);
	proc_create_single("params", 0444, proc_root, params_show);
	find_places();
	error = pci_register_driver(&driver);
	if (error) {
		proc_remove(proc_root);
		device_destroy(device_class, MKDEV(MAJOR_NUMBER, CONTROL_MINOR));
		class_destroy(device_class);
		__unregister_chrdev(MAJOR_NUMBER, 0, 256, "nvidia");
	}
	return error;
}

static void __exit standin_exit(void)
{
	pci_unregister_driver(&driver);
	proc_remove(proc_root);
	device_destroy(device_class, MKDEV(MAJOR_NUMBER, CONTROL_MINOR));
	class_destroy(device_class);
	__unregister_chrdev(MAJOR_NUMBER, 0, 256, "nvidia");
}

module_init(standin_init);
module_exit(standin_exit);
/* proc_create_single and class_create are for GPL modules; the real open module is MIT/GPL too. */
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("nearsocket stand-in: no GPU behind it");
MODULE_VERSION(STANDIN_VERSION);
