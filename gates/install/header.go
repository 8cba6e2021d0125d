package install

import (
	"debug/elf"
	"debug/macho"
	"encoding/binary"
	"io"
	"strings"
)

// maxInterp bounds the name of a dynamic loader.
const maxInterp = 4096

// Header reads for which machine a program is, as GOOS/GOARCH, and the dynamic loader that it
// asks for, "" for a static one. Arch is "" of what is no program for a known machine.
func Header(r io.ReaderAt) (arch, interp string) {
	if f, err := elf.NewFile(r); err == nil {
		return elfArch(f), elfInterp(f)
	}
	if f, err := macho.NewFile(r); err == nil && f.Type == macho.TypeExec {
		switch f.Cpu {
		case macho.CpuAmd64:
			return "darwin/amd64", ""
		case macho.CpuArm64:
			return "darwin/arm64", ""
		}
	}
	return "", ""
}

// elfArch takes a program of 64 bits for Linux; other systems mark theirs.
func elfArch(f *elf.File) string {
	if f.Class != elf.ELFCLASS64 || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN || f.OSABI != elf.ELFOSABI_NONE && f.OSABI != elf.ELFOSABI_LINUX {
		return ""
	}
	little := f.ByteOrder == binary.LittleEndian
	switch {
	case f.Machine == elf.EM_X86_64 && little:
		return "linux/amd64"
	case f.Machine == elf.EM_AARCH64 && little:
		return "linux/arm64"
	case f.Machine == elf.EM_RISCV && little:
		return "linux/riscv64"
	case f.Machine == elf.EM_S390 && !little:
		return "linux/s390x"
	case f.Machine == elf.EM_PPC64 && little:
		return "linux/ppc64le"
	}
	return ""
}

func elfInterp(f *elf.File) string {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b := make([]byte, min(p.Filesz, maxInterp))
		n, _ := p.ReadAt(b, 0)
		if name, _, _ := strings.Cut(string(b[:n]), "\x00"); name != "" {
			return name
		}
		return "unnamed"
	}
	return ""
}
