//! Compiles heapfit's C sources into one static library that defines the `hf_` functions, `unshare`
//! and `setns` (`api/namespaces.c`), and nothing else: not `malloc`, which stays the program's own,
//! and none of the names inside.
//!
//! The sources are those in `vendor/` of a packaged crate, or the checkout's that this crate lies in.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The lists in `allocator/CMakeLists.txt` of what every library has. Files that define names of libc's and C++'s (`malloc`,
/// `operator new`) are in others, and so is what belongs to shared libraries or to one variant.
const LISTS: [&str; 5] = ["PLATFORM", "SPACE", "HEAP", "CONTEXT", "API"];

/// `unshare` and `setns`: the kernel refuses them while there is heapfit's background thread.
const NAMESPACES: &str = "api/namespaces.c";

/// It reads tables as glibc finds them.
const GLIBC_ALONE: &str = "platform/frame.c";

/// As in `cmake/HeapfitVariant.cmake`, where the reasons stand.
const CODE_GENERATION: [&str; 5] = [
    "-fno-builtin-malloc",
    "-ftls-model=initial-exec",
    "-fno-semantic-interposition",
    "-fno-plt",
    "-fvisibility=hidden",
];

fn main() {
    let target_os = env::var("CARGO_CFG_TARGET_OS").expect("cargo sets it");
    assert_eq!(target_os, "linux", "heapfit runs on Linux only");

    let root = sources_root();
    let build = build_of(&root);
    let joined = join(
        &build,
        &build.clone().files(c_files(&root)).compile_intermediates(),
    );
    hide_internal_names(&build, &joined);
    cc::Build::new().object(&joined).compile("heapfit_sys");

    let include = root.join("include");
    println!("cargo:include={}", include.display()); // DEP_HEAPFIT_INCLUDE for those who compile C
    println!("cargo:rustc-env=HEAPFIT_INCLUDE={}", include.display()); // for our own tests
    println!("cargo:rerun-if-changed=build.rs");
    println!(
        "cargo:rerun-if-changed={}",
        root.join("allocator").display()
    );
    println!("cargo:rerun-if-changed={}", include.display());
}

/// The folder that has `allocator/` and `include/` in it.
fn sources_root() -> PathBuf {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut candidates = [here.join("../../.."), here.join("vendor")];
    // A checkout's own come first: `package.py` that was killed has left a copy. Only a packed crate has this file.
    if here.join("Cargo.toml.orig").is_file() {
        candidates.reverse();
    }
    for root in &candidates {
        if root.join("allocator").is_dir() && root.join("include/heapfit/heapfit.h").is_file() {
            return root.canonicalize().expect("it exists");
        }
    }
    panic!(
        "heapfit's C sources are neither in {} nor in {}",
        candidates[0].display(),
        candidates[1].display()
    );
}

fn c_files(root: &Path) -> Vec<PathBuf> {
    let folder = root.join("allocator");
    let lists = fs::read_to_string(folder.join("CMakeLists.txt")).expect("CMakeLists.txt is there");
    let mut names = vec![NAMESPACES];
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() != Ok("musl") {
        names.push(GLIBC_ALONE);
    }
    for list in LISTS {
        let (_, rest) = lists
            .split_once(&format!("set(HEAPFIT_{list}_SOURCES\n"))
            .expect("each list is there");
        let (listed, _) = rest.split_once(')').expect("it ends");
        names.extend(listed.split_whitespace());
    }
    names.iter().map(|name| folder.join(name)).collect()
}

fn build_of(root: &Path) -> cc::Build {
    let version = format!(
        "\"{}\"",
        env::var("CARGO_PKG_VERSION").expect("cargo sets it")
    );
    let mut build = cc::Build::new();
    build
        .include(root.join("include"))
        .include(root.join("allocator"))
        .define("_GNU_SOURCE", "")
        .define("HEAPFIT_VERSION", version.as_str())
        .std("c17")
        .pic(true)
        .opt_level(2); // an allocator without optimisation slows the whole of a debug build down
    for flag in CODE_GENERATION {
        build.flag(flag);
    }
    if env::var_os("CARGO_FEATURE_CHECKS").is_none() {
        build.define("NDEBUG", None);
    }
    build
}

/// One object of many: the linker takes all of it or nothing, and so never loses the constructor
/// that no function refers to.
fn join(build: &cc::Build, objects: &[PathBuf]) -> PathBuf {
    let joined = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("heapfit.o");
    let mut linker = build.get_compiler().to_command();
    linker
        .args(["-r", "-nostdlib", "-o"])
        .arg(&joined)
        .args(objects);
    run(&mut linker);
    joined
}

/// Internal names are as short as `space`: they must not meet those of the program.
fn hide_internal_names(build: &cc::Build, object: &Path) {
    println!("cargo:rerun-if-env-changed=OBJCOPY");
    run(Command::new(objcopy(build))
        .arg("--localize-hidden")
        .arg(object));
}

/// `$OBJCOPY`, or the one that belongs to the archiver: `aarch64-linux-gnu-ar` has
/// `aarch64-linux-gnu-objcopy` beside it.
fn objcopy(build: &cc::Build) -> PathBuf {
    if let Some(program) = env::var_os("OBJCOPY") {
        return program.into();
    }
    let archiver = PathBuf::from(build.get_archiver().get_program());
    let name = archiver.file_name().and_then(OsStr::to_str).unwrap_or("ar");
    let prefix = name
        .strip_suffix("gcc-ar")
        .or_else(|| name.strip_suffix("ar"))
        .unwrap_or("");
    archiver.with_file_name(format!("{prefix}objcopy"))
}

fn run(command: &mut Command) {
    let status = command.status();
    let done = status
        .as_ref()
        .map_or(false, std::process::ExitStatus::success);
    assert!(
        done,
        "{command:?} failed ({status:?}); heapfit needs a C compiler and binutils"
    );
}
