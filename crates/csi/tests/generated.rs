//! The messages and services in `src/spec` are what `proto/csi.proto` says, which is the specification's own file. With
//! `WRITE_GENERATED` in the environment, they are written anew.

use std::path::Path;

/// Alpha in the specification, and not served.
const LEFT_OUT: [&str; 2] = ["GroupController", "SnapshotMetadata"];

#[test]
fn the_code_that_was_written_from_the_specification_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = protox::compile(["csi.proto"], [root.join("proto")]).expect("the specification's file");
    for file in &mut files.file {
        // Its comments are in that file.
        file.source_code_info = None;
        file.service.retain(|service| !LEFT_OUT.contains(&service.name()));
    }
    let scratch = tempfile::tempdir().expect("space");
    let builder = tonic_prost_build::configure().build_transport(false).out_dir(scratch.path());
    builder.compile_fds(files).expect("code");
    let written = std::fs::read_to_string(scratch.path().join("csi.v1.rs")).expect("it was written");
    let kept = root.join("src/spec/csi.v1.generated");
    if std::env::var_os("WRITE_GENERATED").is_some() {
        std::fs::write(&kept, &written).expect("our own file");
    }
    assert!(
        std::fs::read_to_string(kept).expect("our own file") == written,
        "src/spec/csi.v1.generated isn't what proto/csi.proto says: run this with WRITE_GENERATED=1"
    );
}
