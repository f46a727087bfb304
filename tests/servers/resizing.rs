//! One server shortens a volume while others let it grow: what was cut off is never there again.

use super::ring::Ring;
use super::volumes::make;
use crate::nbd::noise;
use crate::program::Ended;

const ROUNDS: u64 = 25;
const SHORT: u64 = 4 << 20;
const LONG: u64 = 24 << 20;
/// What is written past the short end in each round is so far apart, over all columns.
const APART: u64 = 512 << 10;
const PIECE: usize = 64 << 10;

/// Story: a server clears what lies past a volume's end before it lets the volume grow. Another one shortened the volume between the
/// two, and what that cut off was in the volume again, as data that nobody had written there.
#[test]
fn what_one_server_cuts_off_while_others_let_the_volume_grow_is_not_there_again() {
    let ring = Ring::up(3);
    make(&ring, "v", "mirror:2");
    let resize = |server: u32, size: u64| -> Ended {
        ring.ask(server, &["volume", "resize", "v", &size.to_string(), "--shrink", "--force"])
    };
    let grow = |server: u32| ring.ask(server, &["volume", "resize", "v", &LONG.to_string()]);
    resize(1, LONG).succeeded();
    for round in 0..ROUNDS {
        let [cuts, one, other] = [0, 1, 2].map(|turn| ((round + turn) % 3) as u32 + 1);
        ring.wait_until("the server to know the size", || ring.connect(cuts, "v").size == LONG);
        let mut volume = ring.connect(cuts, "v");
        for at in (SHORT..LONG).step_by(APART as usize) {
            volume.write(at, &noise(round + at, PIECE)).expect("written");
        }
        let begin = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            let growing = [one, other].map(|server| {
                let (begin, grow) = (&begin, &grow);
                scope.spawn(move || {
                    begin.wait();
                    // Two, since the first one may have been there before the volume was cut.
                    [grow(server), grow(server)]
                })
            });
            begin.wait();
            resize(cuts, SHORT).succeeded();
            for ended in growing.into_iter().flat_map(|thread| thread.join().expect("no panic")) {
                ended.succeeded();
            }
        });
        grow(cuts).succeeded();
        let mut volume = ring.connect(cuts, "v");
        assert_eq!(volume.size, LONG);
        for at in (SHORT..LONG).step_by(APART as usize) {
            let bytes = volume.read(at, PIECE as u32).expect("read");
            assert!(bytes.iter().all(|byte| *byte == 0), "round {round}: what was cut off is at {at} again");
        }
    }
    super::volumes::scrub_finds_nothing(&ring, "v");
}
