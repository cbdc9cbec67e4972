//! The declarations are those of the header: a C compiler says where members lie and what constants are.

use std::fs;
use std::mem::{align_of, size_of, MaybeUninit};
use std::path::Path;
use std::process::Command;
use std::ptr::addr_of;

use heapfit_sys::*;

/// Where the members of a struct lie in Rust, and the C expressions for the same.
macro_rules! members {
    ($expected:ident, $type:ident, $($member:ident),+) => {{
        let value = MaybeUninit::<$type>::uninit();
        let start = value.as_ptr();
        $expected.push((format!("sizeof({})", stringify!($type)), size_of::<$type>()));
        $expected.push((format!("_Alignof({})", stringify!($type)), align_of::<$type>()));
        $(
            let member = unsafe { addr_of!((*start).$member) } as usize - start as usize;
            let expression = format!("offsetof({}, {})", stringify!($type), stringify!($member));
            $expected.push((expression, member));
        )+
    }};
}

macro_rules! constants {
    ($expected:ident, $($constant:ident),+) => {
        $($expected.push((stringify!($constant).to_string(), $constant as usize));)+
    };
}

fn declared() -> Vec<(String, usize)> {
    let mut expected = Vec::new();
    members!(
        expected,
        hf_context_config,
        kind,
        huge_pages,
        alignment,
        chunk_size,
        segment_size
    );
    members!(
        expected,
        hf_context_config,
        sizes,
        sizes_count,
        limit,
        retain
    );
    members!(
        expected,
        hf_context_stats,
        live_bytes,
        used_bytes,
        peak_bytes,
        footprint
    );
    members!(
        expected,
        hf_context_stats,
        footprint_peak,
        chunks,
        free_alls
    );
    members!(
        expected,
        hf_option,
        name,
        description,
        kind,
        live,
        initial,
        minimum,
        maximum,
        choices,
        unlimited,
        words
    );
    members!(
        expected,
        hf_stats,
        live_objects,
        live_bytes,
        large_objects,
        large_bytes,
        free_bytes
    );
    members!(
        expected,
        hf_stats,
        dirty_bytes,
        own_bytes,
        footprint,
        committed,
        reserved,
        purged
    );
    members!(
        expected,
        hf_stats,
        purges,
        heaps,
        heaps_idle,
        orphan_spans,
        contexts,
        context_bytes
    );
    members!(
        expected,
        hf_stats,
        resident,
        cached_bytes,
        zeroed_bytes,
        zeroed_hits,
        zeroed_misses,
        huge_bytes,
        commits
    );
    members!(
        expected,
        hf_stats,
        advices,
        refills,
        remote_batches,
        remote_blocks,
        threads_sharing,
        nodes,
        guard_slots,
        guard_objects,
        guard_samples,
        guard_missed
    );
    members!(
        expected,
        hf_class_stats,
        block_size,
        spans,
        live_objects,
        free_objects
    );
    members!(
        expected,
        hf_heap_stats,
        number,
        thread,
        spans,
        live_bytes,
        free_bytes,
        cached_bytes,
        refills
    );
    members!(
        expected,
        hf_node_stats,
        node,
        dirty_bytes,
        zeroed_bytes,
        crossings
    );
    members!(
        expected,
        hf_ledger_row,
        cause,
        name,
        in_heap,
        heap,
        thread,
        resident,
        swapped
    );
    constants!(expected, HF_DEFRAG_DODGING, HF_REGION);
    constants!(
        expected,
        HF_OPTION_NUMBER,
        HF_OPTION_SIZE,
        HF_OPTION_FLAG,
        HF_OPTION_CHOICE
    );
    expected
}

#[test]
fn structs_and_constants_are_laid_out_as_in_the_header() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join("layout.c");
    let checks = declared()
        .iter()
        .map(|(expression, value)| {
            format!("_Static_assert({expression} == {value}, \"{expression} is not {value}\");\n")
        })
        .collect::<String>();
    fs::write(&source, format!("#include <heapfit/heapfit.h>\n{checks}")).unwrap();
    let output = Command::new("cc")
        .args(["-std=c11", "-fsyntax-only", "-I", env!("HEAPFIT_INCLUDE")])
        .arg(&source)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn options_are_read_and_set() {
    let name = b"decay_ms\0".as_ptr().cast();
    let mut value = [0_u8; 21];
    unsafe {
        assert!(hf_option_count() > 0 && !hf_option_at(0).is_null());
        assert!(hf_option_at(hf_option_count()).is_null());
        assert_eq!(hf_option_set(name, b"250\0".as_ptr().cast()), 0);
        assert_eq!(
            hf_option_get(name, value.as_mut_ptr().cast(), value.len()),
            0
        );
    }
    assert_eq!(&value[..4], b"250\0");
}

#[test]
fn statistics_count_objects_and_contexts() {
    let mut stats = hf_stats::default();
    unsafe {
        let object = hf_malloc(1000);
        let context = hf_context_create(&hf_context_config::default());
        assert_eq!(hf_stats_get(&mut stats, size_of::<hf_stats>()), 0);
        hf_context_destroy(context);
        hf_free_sized(object, 1000);
    }
    assert!(stats.live_objects >= 1 && stats.live_bytes >= 1000);
    assert_eq!(stats.contexts, 1);
}
