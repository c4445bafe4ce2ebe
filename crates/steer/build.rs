//! Compiles the BPF program, if there is clang. Without it `sluice steer` reports that and uses
//! RPS, and nothing else is affected.

use std::path::Path;
use std::process::Command;

fn main() {
    const SOURCE: &str = "../../bpf/steer.bpf.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rustc-check-cfg=cfg(has_program)");
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let object = Path::new(&out).join("steer.bpf.o");
    let mut compile = Command::new(clang);
    compile.args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf"]);
    // Debian's folder for headers that depend on the architecture.
    for architecture in ["x86_64", "aarch64"] {
        compile.arg(format!("-I/usr/include/{architecture}-linux-gnu"));
    }
    // The program names no folder of the machine that built it.
    let here = std::env::current_dir().expect("cargo builds a crate in its folder");
    compile.arg(format!("-ffile-prefix-map={}=.", here.display()));
    compile.args(["-c", SOURCE, "-o"]).arg(&object);
    match compile.status() {
        Ok(status) if status.success() => println!("cargo::rustc-cfg=has_program"),
        Ok(status) => println!("cargo::warning=the BPF program does not compile ({status})"),
        Err(error) => println!("cargo::warning=sluice steer is built without XDP: clang: {error}"),
    }
}
