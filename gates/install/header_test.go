package install

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"runtime"
	"strings"
	"testing"
)

// program is an ELF file of nothing but its headers.
func program(machine elf.Machine, class elf.Class, osabi elf.OSABI, interp string) []byte {
	var out bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION], h.Ident[elf.EI_OSABI] = byte(class), byte(elf.ELFDATA2LSB), 1, byte(osabi)
	p := elf.Prog64{Type: uint32(elf.PT_LOAD), Off: 120}
	if interp != "" {
		p.Type, p.Filesz = uint32(elf.PT_INTERP), uint64(len(interp)+1)
	}
	for _, v := range []any{h, p} {
		if err := binary.Write(&out, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	out.WriteString(interp + "\x00")
	return out.Bytes()
}

func TestHeader(t *testing.T) {
	macho := []byte("\xcf\xfa\xed\xfe\x0c\x00\x00\x01" + strings.Repeat("\x00", 4) + "\x02" + strings.Repeat("\x00", 19))
	for name, c := range map[string]struct {
		file         []byte
		arch, interp string
	}{
		"static":             {program(elf.EM_X86_64, elf.ELFCLASS64, elf.ELFOSABI_NONE, ""), "linux/amd64", ""},
		"another machine":    {program(elf.EM_AARCH64, elf.ELFCLASS64, elf.ELFOSABI_LINUX, ""), "linux/arm64", ""},
		"dynamic":            {program(elf.EM_X86_64, elf.ELFCLASS64, elf.ELFOSABI_NONE, "/lib64/ld-linux-x86-64.so.2"), "linux/amd64", "/lib64/ld-linux-x86-64.so.2"},
		"unknown machine":    {program(elf.EM_MIPS, elf.ELFCLASS64, elf.ELFOSABI_NONE, ""), "", ""},
		"another system":     {program(elf.EM_X86_64, elf.ELFCLASS64, elf.ELFOSABI_FREEBSD, ""), "", ""},
		"wrong byte order":   {program(elf.EM_S390, elf.ELFCLASS64, elf.ELFOSABI_NONE, ""), "", ""},
		"a program of macOS": {macho, "darwin/arm64", ""},
		"cut":                {program(elf.EM_X86_64, elf.ELFCLASS64, elf.ELFOSABI_NONE, "")[:40], "", ""},
		"a script":           {[]byte("#!/bin/sh\n"), "", ""},
		"nothing":            {nil, "", ""},
	} {
		if arch, interp := Header(bytes.NewReader(c.file)); arch != c.arch || interp != c.interp {
			t.Errorf("%s: %q, %q, want %q, %q", name, arch, interp, c.arch, c.interp)
		}
	}
}

// TestHeaderOfThisProgram reads a real one.
func TestHeaderOfThisProgram(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if arch, _ := Header(f); arch != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("this program is for %q", arch)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(program(elf.EM_X86_64, elf.ELFCLASS64, elf.ELFOSABI_NONE, "/lib/ld.so"))
	f.Add([]byte("\xcf\xfa\xed\xfe"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if arch, interp := Header(bytes.NewReader(b)); arch == "" && interp != "" || len(interp) > maxInterp {
			t.Errorf("%q asks for %q", arch, interp)
		}
	})
}
