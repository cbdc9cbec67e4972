//! One version for the whole project.

use std::fs;
use std::path::Path;

#[test]
fn the_crates_and_the_allocator_have_the_version_of_the_project() {
    assert_eq!(heapfit::version(), env!("CARGO_PKG_VERSION"));
    let written = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../lab/heapfit/__init__.py");
    let text = fs::read_to_string(written).unwrap();
    let line = format!("__version__ = \"{}\"", heapfit::version());
    assert!(
        text.lines().any(|found| found == line),
        "no line {line} in lab/heapfit/__init__.py"
    );
}
