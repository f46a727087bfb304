//! Transfers go on when the server that they ask is killed or stands still: another one answers.

use super::{MIB, Piped, content, fill};
use crate::nbd::noise;
use crate::servers::ring::Ring;
use std::time::Duration;

const SIZE: usize = 40 * MIB;

fn read(ring: &Ring, server: u32, volume: &str) -> Vec<u8> {
    content(&mut ring.connect(server, volume))
}

fn up() -> Ring {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    ring
}

#[test]
fn an_import_and_an_export_go_on_without_the_server_that_they_asked() {
    let ring = up();
    let image = noise(1, SIZE);
    let import = ring.command(&["volume", "import", "z", "--size", "40M", "--layout", "mirror:2"]);
    let mut import = Piped::of(import);
    import.feed(&image[..SIZE / 2]).expect("it reads on");
    ring.kill(1);
    import.feed(&image[SIZE / 2..]).expect("it reads on");
    import.end().succeeded();
    assert!(read(&ring, 2, "z") == image);
    ring.start(&[1]);
    ring.wait_until_all_are_up(2);
    ring.wait_until_healthy(2, "z");
    let mut export = Piped::of(ring.command(&["volume", "export", "z"]));
    let mut exported = export.take(MIB);
    ring.kill(1);
    exported.extend(export.end().succeeded().0);
    assert!(exported == image);
    ring.start(&[1]);
    ring.wait_until_all_are_up(2);
    // One that stands still takes the request, and says nothing.
    let mut export = Piped::of(ring.command(&["volume", "export", "z"]));
    let mut exported = export.take(MIB);
    ring.dev(&["pause", "s1"]).succeeded();
    exported.extend(export.end().succeeded().0);
    assert!(exported == image);
}

/// Story: a server stood still with a piece of an import in it. The import went on by another one and ended, the volume was written to, and
/// when the server woke it wrote its piece over that.
#[test]
fn a_piece_left_behind_in_a_paused_server_is_not_written_when_it_wakes() {
    let ring = up();
    let image = noise(2, SIZE);
    let import = ring.command(&["volume", "import", "z", "--size", "40M", "--layout", "mirror:2"]);
    let mut import = Piped::of(import);
    import.feed(&image[..SIZE / 2]).expect("it reads on");
    ring.dev(&["pause", "s1"]).succeeded();
    import.feed(&image[SIZE / 2..]).expect("it reads on");
    let (_, told) = import.end().succeeded();
    assert!(!told.contains("error"), "{told}");
    let newer = noise(3, SIZE);
    fill(&mut ring.connect(2, "z"), &newer);
    ring.dev(&["resume", "s1"]).succeeded();
    ring.wait_until_all_are_up(2);
    ring.wait_until_healthy(2, "z");
    assert!(read(&ring, 2, "z") == newer);
    let again = Duration::from_secs(3);
    crate::program::stays("what was written last", again, || read(&ring, 3, "z") == newer);
}
