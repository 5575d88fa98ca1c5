//! The programs that are shipped, and the platforms that they are built for. The operator and the page are static, for
//! an image with nothing else in it. The command lines use the C library of their machine, whose name service may have
//! parts (users, hosts) that no static program can load.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use signoff_tests::cargo::{MESSAGES, cargo, executable, output};

/// A program that is shipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    package: &'static str,
    /// The name of the program.
    pub(crate) name: &'static str,
    is_static: bool,
}

/// The operator.
pub(crate) const OPERATOR: Program =
    Program { package: "signoff-controller", name: "signoff-operator", is_static: true };
/// The page.
pub(crate) const PAGE: Program = Program { package: "signoff-web", name: "signoff-web", is_static: true };
/// The plugin of kubectl.
pub(super) const PLUGIN: Program = Program { package: "signoff-cli", name: "kubectl-approve", is_static: false };
/// All shipped programs.
pub(super) const PROGRAMS: [Program; 4] =
    [OPERATOR, PAGE, PLUGIN, Program { package: "signoff-cli", name: "signoff", is_static: false }];

/// Targets of Rust, with the names of their operating system and architecture in Go and Krew.
const TARGETS: [(&str, &str, &str); 2] =
    [("x86_64-unknown-linux-gnu", "linux", "amd64"), ("aarch64-unknown-linux-gnu", "linux", "arm64")];

/// A platform that programs are built for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    /// The target of Rust.
    pub(crate) triple: String,
    /// The operating system, such as `linux`.
    pub(super) os: &'static str,
    /// The architecture, such as `amd64`.
    pub(super) arch: &'static str,
    is_host: bool,
}

impl Platform {
    /// Returns the platform of this machine.
    pub(crate) fn host() -> Result<Self> {
        let host = Self::all()?.into_iter().find(|platform| platform.is_host);
        host.context("programs are shipped for Linux on amd64 and arm64: run this on one of them")
    }

    /// Returns the platforms of which the toolchain has the standard library.
    pub(super) fn all() -> Result<Vec<Self>> {
        let (host, libraries) =
            (read_rustc_field("host")?, PathBuf::from(output(&mut sysroot())?.trim()).join("lib/rustlib"));
        let known = TARGETS.into_iter().filter(|(triple, ..)| libraries.join(triple).join("lib").is_dir());
        let platform =
            |(triple, os, arch): (&str, _, _)| Self { triple: triple.into(), os, arch, is_host: triple == host };
        Ok(known.map(platform).collect())
    }

    /// Returns the name, such as `linux-amd64`.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.os, self.arch)
    }

    fn objcopy(&self) -> String {
        if self.is_host {
            "objcopy".to_owned()
        } else {
            format!("{}objcopy", self.triple.replace("unknown-", "") + "-")
        }
    }
}

impl Program {
    /// Builds the program and writes it into a folder without symbols. The symbols go into `NAME.debug` beside it,
    /// where debuggers and the backtraces of Rust find them. Returns the path of the program.
    pub(crate) fn build(&self, platform: &Platform, folder: &Path) -> Result<PathBuf> {
        let mut build = cargo(&["rustc", "--release", "--locked", MESSAGES]);
        build.args(["--package", self.package, "--bin", self.name]);
        if !platform.is_host {
            // The C compiler of Debian's cross toolchain; Rust would use the one of this machine.
            let variable = format!("CARGO_TARGET_{}_LINKER", platform.triple.to_uppercase().replace('-', "_"));
            build.args(["--target", &platform.triple]).env(variable, platform.triple.replace("unknown-", "") + "-gcc");
        }
        build.args(["--", "-C", "strip=none"]);
        if self.is_static {
            build.args(["-C", "target-feature=+crt-static"]);
        }
        let built = executable(&mut build, self.name)?;
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let (program, symbols) = (folder.join(self.name), folder.join(format!("{}.debug", self.name)));
        let objcopy = || Command::new(platform.objcopy());
        let only = ["--only-keep-debug", "--compress-debug-sections=zlib"];
        output(objcopy().args(only).arg(&built).arg(&symbols)).context("objcopy (of binutils) splits off symbols")?;
        let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
        link.push(&symbols);
        output(objcopy().arg("--strip-all").arg(link).arg(&built).arg(&program))?;
        Ok(program)
    }
}

/// A linked library that is not a crate.
#[derive(Clone, Debug)]
pub(super) struct Library {
    pub(super) name: &'static str,
    pub(super) version: String,
    pub(super) licence: &'static str,
}

/// Returns the libraries that the toolchain links in: Rust's own, and the C library of the static programs.
pub(super) fn find_libraries() -> Result<Vec<Library>> {
    let output_text =
        output(Command::new("getconf").arg("GNU_LIBC_VERSION")).context("asking for the C library's version")?;
    let glibc = output_text.trim().strip_prefix("glibc ").context("the C library is not glibc")?.to_owned();
    Ok(vec![
        Library { name: "glibc", version: glibc, licence: "LGPL-2.1-or-later" },
        Library { name: "rust-std", version: read_rustc_field("release")?, licence: "MIT OR Apache-2.0" },
    ])
}

fn sysroot() -> Command {
    let mut command = Command::new("rustc");
    command.args(["--print", "sysroot"]);
    command
}

/// Returns a line of `rustc -vV`.
fn read_rustc_field(field: &str) -> Result<String> {
    let output_text = output(Command::new("rustc").arg("-vV"))?;
    let value = output_text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
    let value = value.with_context(|| format!("`rustc -vV` says nothing about {field}"))?.to_owned();
    ensure!(!value.is_empty(), "`rustc -vV`: empty {field}");
    Ok(value)
}
