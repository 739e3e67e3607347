package vmtest

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// guestModules are what the guest's kernel has to load; what these need in turn is found. The
// checksum of packets is asked for by name at run time, so it is listed. The second half makes
// the cable a bad one.
var guestModules = []string{
	"virtio_pci", "virtio_net", "crc32_generic", "ib_uverbs", "rdma_ucm",
	"ifb", "sch_ingress", "sch_netem", "cls_matchall", "act_mirred",
}

// guestPackage is the first process of a guest.
const guestPackage = "github.com/softrnic/softrnic/test/vmtest/guest"

// threadLibrary is what the C library loads when a program cancels a thread, as rping does.
const threadLibrary = "/lib/*-linux-gnu/libgcc_s.so.1"

// Image is a kernel and a root file system in memory.
type Image struct {
	// Kernel is the package that the kernel is from.
	Kernel         string
	kernel, initrd string
	driver         Driver
}

// Config says what is in an image.
type Config struct {
	Driver Driver
	// Programs are the host's by name, copied with their libraries.
	Programs []string
	// Files are further ones of the host, by the name that they have inside.
	Files map[string]string
}

// Build makes an image in dir, of Debian's kernel, which it fetches once, and of programs.
func Build(dir string, c Config) (Image, error) {
	root, err := unpackKernel()
	if err != nil {
		return Image{}, err
	}
	kernels, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return Image{}, fmt.Errorf("%d kernels below %s", len(kernels), root)
	}
	var a archive
	for _, name := range []string{"proc", "sys", "dev", "tmp", "run", "root"} {
		a.addDir(name)
	}
	a.addConsole()
	if err := addModules(&a, root, c.Driver); err != nil {
		return Image{}, err
	}
	if err := addPrograms(&a, c); err != nil {
		return Image{}, err
	}
	for name, from := range c.Files {
		if err := a.addFile(name, from); err != nil {
			return Image{}, err
		}
	}
	guest := filepath.Join(dir, "guest")
	build := exec.Command("go", "build", "-o", guest, guestPackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return Image{}, fmt.Errorf("build the guest's program: %w: %s", err, out)
	}
	if err := a.addFile("init", guest); err != nil {
		return Image{}, err
	}
	initrd := filepath.Join(dir, "initrd")
	if err := os.WriteFile(initrd, a.finish(), 0o600); err != nil {
		return Image{}, err
	}
	return Image{
		Kernel: filepath.Base(root), kernel: kernels[0], initrd: initrd, driver: c.Driver,
	}, nil
}

var kernelPackage = regexp.MustCompile(`(?m)^\s*Depends: (linux-image-\S+)$`)

// unpackKernel downloads and unpacks Debian's current kernel, once, unless RNIC_INTEROP_KERNEL
// names the directory of another one.
func unpackKernel() (root string, err error) {
	if root = os.Getenv("RNIC_INTEROP_KERNEL"); root != "" {
		return root, nil
	}
	if root, err = tryUnpackKernel(); err == nil {
		return root, nil
	}
	// The lists of packages may be absent, or name a kernel that is no longer to be had.
	if out, err := exec.Command("apt-get", "-qq", "update").CombinedOutput(); err != nil {
		return "", fmt.Errorf("apt-get update: %w: %s", err, out)
	}
	return tryUnpackKernel()
}

func tryUnpackKernel() (root string, err error) {
	out, err := exec.Command("apt-cache", "depends", "linux-image-amd64").Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache depends: %w", err)
	}
	m := kernelPackage.FindSubmatch(out)
	if m == nil {
		return "", errors.New("no package linux-image-amd64 is known")
	}
	name := string(m[1])
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	root = filepath.Join(cache, name)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	// Two that do it at once each have a directory of their own.
	partial, err := os.MkdirTemp(cache, "partial-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(partial)
	deb, err := download(partial, name)
	if err != nil {
		return "", err
	}
	unpacked := filepath.Join(partial, "root")
	out, err = exec.Command("dpkg-deb", "-x", deb, unpacked).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("unpack the kernel: %w: %s", err, out)
	}
	if err := os.Rename(unpacked, root); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return root, nil
}

// addModules adds the modules and the list that says in which order to load them.
func addModules(a *archive, root string, d Driver) error {
	files := map[string]string{}
	walk := func(path string, _ fs.DirEntry, err error) error {
		name, ok := strings.CutSuffix(strings.TrimSuffix(filepath.Base(path), ".xz"), ".ko")
		if ok {
			files[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	}
	// They are below lib or, in newer packages, usr/lib.
	if err := filepath.WalkDir(root, walk); err != nil {
		return err
	}
	if err := d.addOwnModules(files, root); err != nil {
		return err
	}
	var order []string
	for _, name := range slices.Concat(guestModules, d.Modules) {
		if files[name] == "" {
			continue // built into the kernel
		}
		var err error
		if order, err = appendModule(order, files, name); err != nil {
			return err
		}
	}
	var list strings.Builder
	for _, name := range order {
		inside := "lib/modules/" + name + ".ko"
		if err := a.addFile(inside, files[name]); err != nil {
			return err
		}
		fmt.Fprintf(&list, "/%s\n", inside)
	}
	a.add("modules", 0o100644, []byte(list.String()))
	return nil
}

// appendModule appends a module after those that it depends on.
func appendModule(order []string, files map[string]string, name string) ([]string, error) {
	if slices.Contains(order, name) {
		return order, nil
	}
	if path, packed := strings.CutSuffix(files[name], ".xz"); packed {
		// Only now, for there are thousands; the cache has it unpacked from then on.
		if out, err := exec.Command("xz", "-d", files[name]).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("xz -d %s: %w: %s", files[name], err, out)
		}
		files[name] = path
	}
	needs, err := moduleNeeds(files[name])
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", name, err)
	}
	for _, other := range needs {
		if order, err = appendModule(order, files, other); err != nil {
			return nil, err
		}
	}
	return append(order, name), nil
}

func moduleNeeds(file string) ([]string, error) {
	module, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer module.Close()
	section := module.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s has no .modinfo", file)
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(entry, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(strings.ReplaceAll(string(list), "-", "_"), ","), nil
		}
	}
	return nil, nil
}

var libraryPath = regexp.MustCompile(`(/\S+) \(0x`)

// addPrograms adds the programs, their libraries, and the driver's provider with its registration.
func addPrograms(a *archive, c Config) error {
	providers, err := filepath.Glob("/usr/lib/*/libibverbs/lib" + c.Driver.Link + "-*.so")
	if err != nil || len(providers) != 1 {
		return fmt.Errorf("%d providers for %s; install ibverbs-providers", len(providers), c.Driver.Link)
	}
	more, err := filepath.Glob(threadLibrary)
	if err != nil || len(more) == 0 {
		return fmt.Errorf("no %s", threadLibrary)
	}
	files := []string{"/etc/libibverbs.d/" + c.Driver.Link + ".driver", providers[0], more[0]}
	for _, name := range c.Programs {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		files = append(files, path)
	}
	libraries := map[string]bool{}
	for _, file := range files[1:] {
		out, err := exec.Command("ldd", file).Output()
		if err != nil {
			return fmt.Errorf("ldd %s: %w", file, err)
		}
		for _, m := range libraryPath.FindAllStringSubmatch(string(out), -1) {
			libraries[m[1]] = true
		}
	}
	for library := range libraries {
		files = append(files, library)
	}
	for _, file := range files {
		if err := a.addFile(strings.TrimPrefix(file, "/"), file); err != nil {
			return err
		}
	}
	return nil
}
