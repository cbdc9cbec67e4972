//! With the feature `checks`, contexts find what unsafe code does wrong.
#![cfg(feature = "checks")]

use std::alloc::Layout;
use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use heapfit::allocator_api2::alloc::Allocator;
use heapfit::Context;

const MISUSE: &str = "HEAPFIT_TEST_MISUSE";
const SIGABRT: i32 = 6;

/// Run this program's test of that name again with `MISUSE` set, and return what it said as it aborted.
fn aborts(test: &str) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MISUSE, "1")
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(SIGABRT), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn is_to_misuse() -> bool {
    env::var_os(MISUSE).is_some()
}

#[test]
fn a_block_that_is_freed_twice_ends_the_program() {
    if is_to_misuse() {
        let context = Context::new().unwrap();
        let layout = Layout::new::<[u64; 4]>();
        let block = (&context).allocate(layout).unwrap().cast();
        unsafe {
            (&context).deallocate(block, layout);
            (&context).deallocate(block, layout);
        }
        return;
    }
    let said = aborts("a_block_that_is_freed_twice_ends_the_program");
    assert!(said.contains("freed twice"), "{said}");
}

#[test]
fn a_block_that_is_written_to_after_free_all_ends_the_program() {
    if is_to_misuse() {
        let mut context = Context::new().unwrap();
        let layout = Layout::new::<[u64; 4]>();
        let block = (&context).allocate(layout).unwrap().cast::<[u64; 4]>();
        context.free_all();
        unsafe { block.as_ptr().write([1; 4]) };
        let _next = (&context).allocate(layout);
        return;
    }
    let said = aborts("a_block_that_is_written_to_after_free_all_ends_the_program");
    assert!(said.contains("after free_all"), "{said}");
}
