//! Histories of one block as short texts. `w1(` begins a write of the whole block and `w1)` acknowledges it; `w1?` ends it
//! with nobody knowing, `w1!` refuses it. `W` is a write with FUA, `a` one of the first half, `b` of the second half, `z`
//! zeroes. `r1(` begins a read, `r1=2` says that it returned what write 2 wrote, `r1=2|0` the first half of write 2 and
//! zeros; `h` reads the second half only. `c` cuts the block off with the volume's end. `s1(` asks what is mapped, `s1=hole`
//! and `s1=data` are the answers. `f1(`, `f1)` is a flush; `kill` and `power` are crashes, `drive` is one of the block's only drive,
//! `other` of another drive.

use super::*;

const SEED: u64 = 11;
const HALF: u64 = BLOCK / 2;

fn rules(text: &str) -> Rules {
    match text {
        "strict" => Rules { durability: Durability::Strict, reads_settle: true, late: false },
        "copies" => Rules { durability: Durability::Strict, reads_settle: false, late: false },
        _ => Rules { durability: Durability::Flush, reads_settle: true, late: false },
    }
}

struct Play {
    checker: Checker,
    ops: BTreeMap<String, OpId>,
    now: Duration,
}

impl Play {
    fn bytes(&self, value: &str) -> Vec<u8> {
        let halves: Vec<&str> = if value.contains('|') { value.split('|').collect() } else { vec![value, value] };
        let mut data = vec![0; BLOCK as usize];
        for (index, half) in halves.iter().enumerate().filter(|(_, half)| **half != "0") {
            let at = index * HALF as usize;
            let op = "wWab".chars().find_map(|kind| self.ops.get(&format!("{kind}{half}")));
            match op {
                Some(&op) => pattern::fill(SEED, op, BLOCK + at as u64, &mut data[at..at + HALF as usize]),
                None => data[at..at + HALF as usize].fill(0xee),
            }
        }
        data
    }

    fn begin(&mut self, name: &str) {
        let (kind, offset, length) = match &name[..1] {
            "w" => (Kind::Write { fua: false }, 0, BLOCK),
            "W" => (Kind::Write { fua: true }, 0, BLOCK),
            "a" => (Kind::Write { fua: false }, 0, HALF),
            "b" => (Kind::Write { fua: false }, HALF, HALF),
            "z" => (Kind::Zeroes { fua: false }, 0, BLOCK),
            "c" => (Kind::Cut, 0, BLOCK),
            "s" => (Kind::Status, 0, BLOCK),
            "r" => (Kind::Read, 0, BLOCK),
            "h" => (Kind::Read, HALF, HALF),
            _ => (Kind::Flush, 0, 0),
        };
        let op = self.checker.begin(self.now, kind, BLOCK + offset, length);
        self.ops.insert(name.to_owned(), op);
    }

    fn step(&mut self, token: &str) -> Result<(), Violation> {
        self.now += Duration::from_millis(1);
        match token {
            "kill" => self.checker.crashed(self.now, Loss::Process),
            "power" => self.checker.crashed(self.now, Loss::Power),
            "drive" => self.checker.drive_returned(self.now, |_| true),
            "other" => self.checker.drive_returned(self.now, |number| number != 1),
            _ => {
                let (name, rest) = token.split_at(2);
                match (rest, self.ops.get(name).copied()) {
                    ("(", _) => self.begin(name),
                    (")", Some(op)) => self.checker.acknowledged(self.now, op)?,
                    ("?", Some(op)) => self.checker.failed(self.now, op, Fate::Unknown)?,
                    ("=hole", Some(op)) => self.checker.told(self.now, op, &[(BLOCK, false)])?,
                    ("=data", Some(op)) => self.checker.told(self.now, op, &[(BLOCK, true)])?,
                    ("!", Some(op)) => self.checker.failed(self.now, op, Fate::Refused)?,
                    (_, Some(op)) => {
                        let whole = self.bytes(&rest[1..]);
                        let from = if name.starts_with('h') { HALF as usize } else { 0 };
                        self.checker.returned(self.now, op, &whole[from..])?;
                    }
                    (_, None) => panic!("{token} before it began"),
                }
            }
        }
        Ok(())
    }
}

/// Whether the history is allowed, else the story.
fn judge(durability: &str, history: &str) -> Result<(), Violation> {
    let checker = Checker::new(SEED, rules(durability));
    let mut play = Play { checker, ops: BTreeMap::new(), now: Duration::ZERO };
    history.split_whitespace().try_for_each(|token| play.step(token))
}

#[test]
fn what_a_register_may_do_is_allowed() {
    for (durability, history) in [
        ("strict", "r1( r1=0"),
        ("strict", "w1( w1) r1( r1=1"),
        ("strict", "w1( r1( r1=0 r2( r2=1 w1)"),
        ("strict", "w1( r1( r1=1 w1) r2( r2=1"),
        // A read that began before a write was acknowledged may still see what was before.
        ("strict", "w1( w1) w2( r1( w2) r1=1"),
        ("strict", "w1( w1) r1( w2( w2) w3( w3) r1=2"),
        ("strict", "w1( w1) r1( w2( w2) w3( w3) r1=3"),
        // Two writes at once end in either order.
        ("strict", "w1( w2( w1) w2) r1( r1=1 r2( r2=1"),
        ("strict", "w1( w2( w1) w2) r1( r1=2 r2( r2=2"),
        ("strict", "w1( w2( r1( r1=2 r2( r2=1 w1) w2) r3( r3=1"),
        // Of a write over several drives one part may be done, and overwritten, when another drive loses its cache.
        ("flush", "w1( w2( w2) drive w1) r1( r1=2"),
        ("flush", "w1( w2( w2) drive w1) r1( r1=1"),
        // Two reads at once may each see another moment.
        ("strict", "w1( w1) r1( r2( w2( w2) r1=2 r2=1"),
        ("strict", "w1( w1) z2( z2) r1( r1=0"),
        // Parts of a block.
        ("strict", "w1( w1) a2( a2) r1( r1=2|1"),
        ("strict", "w1( w1) a2( b3( r1( r1=1|3 a2) b3) r2( r2=2|3"),
        ("strict", "a1( w2( a1) w2) r1( r1=2"),
        ("strict", "a1( w2( a1) w2) r1( r1=1|2"),
        // Nobody knows of a write whose request was given up, until it's seen or overwritten.
        ("strict", "w1( w1) w2( w2? r1( r1=1 r2( r2=1"),
        ("strict", "w1( w1) w2( w2? r1( r1=2 r2( r2=2"),
        ("strict", "w1( w1) w2( w2? r1( r1=1 r2( r2=2 r3( r3=2"),
        ("strict", "w1( w1) w2( w2? w3( w3) r1( r1=3"),
        ("strict", "w1( w1) w2( kill r1( r1=1"),
        ("strict", "w1( w1) w2( kill r1( r1=2 r2( r2=2"),
        ("strict", "w1( w1) w2( w3( power r1( r1=3 r2( r2=3"),
        ("copies", "w1( w1) w2( kill r1( r1=1 r2( r2=2 r3( r3=2"),
        ("strict", "w1( w1) w2( w2! r1( r1=1"),
        ("strict", "w1( w1) r1( r1? w2( w2) r2( r2=2"),
        ("strict", "a1( b2( kill r1( r1=0|2"),
        // A read of one half settles, but doesn't tell, what a crash has left of the other.
        ("strict", "a1( kill h1( h1=0 r1( r1=1|0"),
        ("strict", "a1( kill h1( h1=0 r1( r1=0"),
        ("strict", "a1( kill b2( b2) r1( r1=1|2"),
        ("strict", "a1( kill b2( r1( r1=1|2 b2)"),
        // Only flushed writes outlive the power, where the layout says so.
        ("flush", "w1( w1) w2( w2) power r1( r1=0 r2( r2=0"),
        ("flush", "w1( w1) w2( w2) power r1( r1=1 r2( r2=1"),
        ("flush", "w1( w1) w2( w2) kill r1( r1=2"),
        ("flush", "w1( w1) f1( f1) w2( w2) power r1( r1=1"),
        ("flush", "w1( w1) f1( f1) w2( w2) w3( power r1( r1=3"),
        ("flush", "w1( w1) f1( w2( w2) f1) power r1( r1=1"),
        ("flush", "w1( w1) r1( r1=1 power r2( r2=0"),
        ("flush", "w1( w1) a2( a2) b3( b3) power r1( r1=2|1"),
        ("flush", "W1( W1) w2( w2) power r1( r1=1"),
        ("flush", "w1( f1( f1) w1) power r1( r1=0"),
        ("flush", "w1( w2( w1) w2) power r1( r1=1"),
        // A drive that was without power forgets, and its server goes on.
        ("flush", "w1( w1) drive r1( r1=0 r2( r2=0"),
        ("flush", "w1( w1) r1( drive r1=1 r2( r2=0"),
        ("flush", "w1( w1) w2( drive w2) r1( r1=2"),
        ("flush", "w1( w1) w2( r1( drive r1=2 r2( r2=1 w2) r3( r3=2"),
        ("flush", "w1( w1) drive w2( w2) r1( r1=2"),
        ("flush", "w1( w1) f1( f1) w2( w2) drive r1( r1=1"),
        // What was cut off reads as zeros when the volume has grown again.
        ("strict", "w1( w1) c2( c2) r1( r1=0"),
        ("strict", "w1( w1) c2( kill c3( c3) r1( r1=0"),
        ("flush", "w1( w1) f1( f1) c2( c2) power r1( r1=1"),
        // A hole may hold zeros; what is mapped may hold anything. Nothing is settled by it.
        ("strict", "s1( s1=hole w1( w1) s2( s2=data z3( z3) s4( s4=hole s5( s5=data"),
        ("strict", "w1( s1( s1=hole s2( s2=data s3( s3=hole w1)"),
        ("strict", "s1( w1( w1) s1=hole"),
        ("strict", "w1( w1) z2( s1( s1=hole r1( r1=1 z2) r2( r2=0"),
        ("strict", "w1( kill s1( s1=hole r1( r1=1"),
        ("flush", "w1( w1) power s1( s1=hole"),
    ] {
        if let Err(violation) = judge(durability, history) {
            panic!("{durability}: {history}\n{violation}");
        }
    }
}

#[test]
fn what_breaks_the_promise_is_found() {
    for (durability, history) in [
        // Wrong bytes.
        ("strict", "r1( r1=7"),
        ("strict", "w1( w1) r1( r1=0"),
        ("strict", "w1( w1) r1( r1=7"),
        ("strict", "w1( w1) z2( z2) r1( r1=1"),
        ("strict", "r1( r1=0|7"),
        // Time goes backwards.
        ("strict", "w1( r1( r1=1 r2( r2=0"),
        ("strict", "w1( w1) w2( w2) r1( r1=1"),
        ("strict", "w1( w1) w2( r1( r1=2 r2( w2) r2=1"),
        ("strict", "w1( w1) w2( w2) r1( w3( w3) r1=1"),
        ("strict", "w1( w2( r1( r1=1 r2( r2=2 r3( r3=1"),
        ("strict", "w1( w1) w2( w2? r1( r1=2 r2( r2=1"),
        ("strict", "w1( w2( w1) r1( r1=1 w2) r2( r2=1 r3( r3=2"),
        // A write that came too late.
        ("strict", "w1( w1? w2( w2) r1( r1=1"),
        ("strict", "w1( kill w2( w2) r1( r1=1"),
        ("strict", "w1( w1) w2( kill r1( r1=1 r2( r2=2"),
        ("strict", "a1( kill h1( h1=0 r1( r1=1|0 r2( r2=0"),
        ("strict", "w1( w1) w2( w2? kill r1( r1=1 r2( r2=2"),
        ("copies", "w1( w1) w2( kill r1( r1=2 r2( r2=1"),
        ("strict", "w1( w1) w2( w2! r1( r1=2"),
        ("strict", "w1( w1) w2( r1( r1=2 w2!"),
        // Mixed blocks.
        ("strict", "w1( w1) w2( r1( r1=2|1"),
        ("strict", "w1( w2( w1) w2) r1( r1=1|2"),
        ("strict", "w1( w1) w2( power r1( r1=2|1"),
        ("strict", "w1( w1) a2( a2) r1( r1=2|0"),
        ("strict", "a1( a1) b2( b2) r1( r1=1|0"),
        ("strict", "w1( w1) a2( b3( a2) b3) r1( r1=1|3"),
        ("strict", "w1( w1) a2( b3( r1( r1=1|3 r2( r2=2|1"),
        // Acknowledged writes lost.
        ("strict", "w1( w1) kill r1( r1=0"),
        ("strict", "w1( w1) power r1( r1=0"),
        ("flush", "w1( w1) kill r1( r1=0"),
        ("flush", "w1( w1) f1( f1) power r1( r1=0"),
        ("flush", "w1( w1) w2( w2) f1( f1) w3( w3) power r1( r1=1"),
        ("flush", "W1( W1) power r1( r1=0"),
        ("flush", "w1( w1) W2( W2) power r1( r1=1"),
        ("flush", "w1( w1) W2( w3( w3) W2) power r1( r1=1"),
        ("flush", "w1( w1) power r1( r1=0 r2( r2=1"),
        ("flush", "w1( w1) power w2( w2) kill r1( r1=1"),
        ("flush", "w1( w1) a2( a2) b3( b3) power r1( r1=1|3"),
        ("flush", "w1( w1) f1( f1) drive r1( r1=0"),
        ("flush", "w1( w1) drive r1( r1=0 r2( r2=1"),
        ("flush", "w1( w1) w2( drive w2) r1( r1=1"),
        ("flush", "w1( w1) w2( drive w2) f1( f1) drive r1( r1=1"),
        ("flush", "w1( w1) other r1( r1=0"),
        ("strict", "w1( w1) drive r1( r1=0"),
        // What was cut off comes back; what was promised is called a hole.
        ("strict", "w1( w1) c2( c2) r1( r1=1"),
        ("strict", "w1( w1) s1( s1=hole"),
        ("strict", "w1( w1) z2( z2) a3( a3) s1( s1=hole"),
        ("strict", "w1( w1) kill s1( s1=hole"),
        ("strict", "w1( r1( r1=1 s1( s1=hole"),
        ("flush", "w1( w1) f1( f1) power s1( s1=hole"),
        // An acknowledgement that can't be.
        ("strict", "w1( kill w2( w2) r1( r1=2 r2( r2=1"),
    ] {
        assert!(judge(durability, history).is_err(), "{durability}: {history}");
    }
}

#[test]
fn the_story_names_the_block_what_was_read_what_was_allowed_and_the_history() {
    let story = judge("strict", "w1( w1) a2( a2) f1( f1) kill r1( r1=1").unwrap_err().to_string();
    for part in [
        "block 1 (bytes 4096..8192), #5 Read 4096+4096 from",
        "0..4096: write #1\n",
        "allowed:\n    0..2048: write #2 2048..4096: write #1 (differs first at 0)\n",
        "#2 Write { fua: false } 4096+2048 from 3ms to 4ms",
        "Crash(Process)",
    ] {
        assert!(story.contains(part), "no '{part}' in:\n{story}");
    }
    let story = judge("strict", "w1( w1) r1( r1=1|7").unwrap_err().to_string();
    assert!(story.contains("0..2048: write #1\n    2048..4096: bytes that nobody wrote here: [ee, ee"), "{story}");
}

#[test]
fn a_read_of_another_length_than_asked_for_is_wrong() {
    let mut checker = Checker::new(SEED, rules("strict"));
    let op = checker.begin(Duration::ZERO, Kind::Read, 100, 10);
    let violation = checker.returned(Duration::ZERO, op, &[0; 9]).unwrap_err();
    assert_eq!(violation.wrong, Wrong::Length { got: 9 });
}

#[test]
fn runs_that_do_not_fit_what_was_asked_are_wrong() {
    for runs in [&[][..], &[(0, true)], &[(BLOCK, true), (BLOCK, true)], &[(3 * BLOCK, false)]] {
        let mut checker = Checker::new(SEED, rules("strict"));
        let op = checker.begin(Duration::ZERO, Kind::Status, 0, 2 * BLOCK);
        assert_eq!(checker.told(Duration::ZERO, op, runs).unwrap_err().wrong, Wrong::Runs, "{runs:?}");
    }
}

#[test]
fn cutting_off_touches_only_what_was_ever_asked_for() {
    let mut checker = Checker::new(SEED, rules("strict"));
    let cut = checker.begin(Duration::ZERO, Kind::Cut, 512, 1 << 26);
    checker.acknowledged(Duration::ZERO, cut).unwrap();
    assert_eq!(checker.touched(), vec![Range { start: 0, end: BLOCK }]);
}

#[test]
fn a_request_over_many_blocks_is_judged_in_each_and_is_atomic_in_none_together() {
    let mut checker = Checker::new(SEED, rules("strict"));
    let (offset, length) = (BLOCK - 5, 2 * BLOCK + 10);
    let write = checker.begin(Duration::ZERO, Kind::Write { fua: false }, offset, length);
    let data = checker.data(write);
    let mut mixed = data.to_vec();
    mixed[5..5 + BLOCK as usize].fill(0); // the first whole block is still old
    let read = checker.begin(Duration::ZERO, Kind::Read, offset, length);
    checker.returned(Duration::ZERO, read, &mixed).unwrap();
    mixed[..5].fill(0);
    let read = checker.begin(Duration::ZERO, Kind::Read, offset, length);
    let violation = checker.returned(Duration::ZERO, read, &mixed).unwrap_err();
    assert_eq!(violation.offset, 0, "the first block was seen new");
}

/// The search must stay small however many writes of one block end without an answer.
#[test]
fn many_crashed_writes_of_one_block_stay_cheap_to_judge() {
    let mut checker = Checker::new(SEED, rules("copies"));
    for round in 0..200 {
        for _ in 0..3 {
            checker.begin(Duration::ZERO, Kind::Write { fua: false }, 0, BLOCK);
        }
        checker.crashed(Duration::ZERO, Loss::Process);
        if round % 4 == 3 {
            let write = checker.begin(Duration::ZERO, Kind::Write { fua: false }, 0, BLOCK);
            checker.acknowledged(Duration::ZERO, write).unwrap();
            let read = checker.begin(Duration::ZERO, Kind::Read, 0, BLOCK);
            let mut data = vec![0; BLOCK as usize];
            pattern::fill(SEED, write, 0, &mut data);
            checker.returned(Duration::ZERO, read, &data).unwrap();
        }
    }
    assert!(checker.load(0, BLOCK) < 20);
}

/// What the block is after a write, and what a snapshot shows of it.
fn written(checker: &mut Checker, kind: Kind) -> (OpId, Vec<u8>) {
    let op = checker.begin(Duration::ZERO, kind, 0, BLOCK);
    checker.acknowledged(Duration::ZERO, op).unwrap();
    (op, checker.data(op).to_vec())
}

fn reads(checker: &mut Checker, data: &[u8]) -> bool {
    let read = checker.begin(Duration::ZERO, Kind::Read, 0, BLOCK);
    checker.returned(Duration::ZERO, read, data).is_ok()
}

#[test]
fn what_may_have_gone_with_a_cache_may_be_missing_in_a_later_snapshot_and_what_was_flushed_may_not() {
    const WRITE: Kind = Kind::Write { fua: false };
    for (durability, flushes, may_lack) in [("flush", false, true), ("flush", true, false), ("strict", false, false)] {
        let mut checker = Checker::new(SEED, rules(durability));
        let (_, first) = written(&mut checker, Kind::Write { fua: true });
        let (_, second) = written(&mut checker, WRITE);
        if flushes {
            let flush = checker.begin(Duration::ZERO, Kind::Flush, 0, 0);
            checker.acknowledged(Duration::ZERO, flush).unwrap();
        }
        checker.crashed(Duration::ZERO, Loss::Power);
        let cut = checker.snapshot_asked();
        let cut = checker.snapshot_answered(cut);
        assert_eq!(checker.judge_snapshot(cut, &first).is_ok(), may_lack, "{durability}, flushed: {flushes}");
        assert!(checker.judge_snapshot(cut, &second).is_ok());
        assert!(checker.judge_snapshot(cut, &[0; BLOCK as usize]).is_err());
    }
}

/// Story: one byte of a later write was zero, as it had been before, and the snapshot was held to have that write.
#[test]
fn a_write_of_what_was_there_before_is_not_known_to_be_in_a_snapshot() {
    const WRITE: Kind = Kind::Write { fua: false };
    let mut checker = Checker::new(SEED, rules("strict"));
    let cut = checker.snapshot_asked();
    written(&mut checker, WRITE);
    let byte = |offset| {
        let op = checker.begin(Duration::ZERO, WRITE, offset, 1);
        checker.acknowledged(Duration::ZERO, op).unwrap();
        checker.data(op)[0]
    };
    assert!((BLOCK + 4..4 * BLOCK).step_by(8).map(byte).any(|byte| byte == 0));
    let cut = checker.snapshot_answered(cut);
    checker.judge_snapshot(cut, &[0; 4 * BLOCK as usize]).unwrap();
}

#[test]
fn a_volume_that_was_rolled_back_is_what_the_snapshot_was_and_so_are_later_snapshots() {
    let mut checker = Checker::new(SEED, rules("strict"));
    let (_, first) = written(&mut checker, Kind::Write { fua: false });
    let asked = checker.snapshot_asked();
    let early = checker.snapshot_answered(asked);
    let (_, second) = written(&mut checker, Kind::Write { fua: false });
    assert!(checker.judge_snapshot(early, &second).is_err(), "it was sent later");
    checker.rolled_back(early, &first).unwrap();
    assert!(reads(&mut checker, &first));
    let asked = checker.snapshot_asked();
    let late = checker.snapshot_answered(asked);
    assert!(checker.judge_snapshot(late, &first).is_ok());
    assert!(checker.judge_snapshot(late, &second).is_err(), "that was undone");
    let (_, third) = written(&mut checker, Kind::Write { fua: false });
    assert!(!reads(&mut checker, &first));
    checker.rolled_back(late, &first).unwrap();
    assert!(checker.judge_snapshot(early, &first).is_ok() && checker.judge_snapshot(late, &first).is_ok());
    assert!(reads(&mut checker, &first));
    assert!(!reads(&mut checker, &third));
}

const LATE: Rules = Rules { durability: Durability::Strict, reads_settle: false, late: true };

#[test]
fn what_is_sent_past_an_end_that_is_cut_off_may_go_with_it() {
    for shown_after in [true, false] {
        let mut checker = Checker::new(SEED, LATE);
        let cut = checker.begin(Duration::ZERO, Kind::Cut, 0, 1 << 26);
        // Of a block that nobody had asked for before.
        let write = checker.begin(Duration::ZERO, Kind::Write { fua: false }, BLOCK, BLOCK);
        checker.acknowledged(Duration::ZERO, write).unwrap();
        checker.acknowledged(Duration::ZERO, cut).unwrap();
        let read = checker.begin(Duration::ZERO, Kind::Read, BLOCK, BLOCK);
        let data = if shown_after { checker.data(write).to_vec() } else { vec![0; BLOCK as usize] };
        checker.returned(Duration::ZERO, read, &data).unwrap();
    }
}

#[test]
fn nothing_is_cut_off_any_more_once_the_volume_has_grown() {
    for grows in [false, true] {
        let mut checker = Checker::new(SEED, LATE);
        let cut = checker.begin(Duration::ZERO, Kind::Cut, 0, 1 << 26);
        checker.failed(Duration::ZERO, cut, Fate::Unknown).unwrap();
        if grows {
            checker.grown();
        }
        written(&mut checker, Kind::Write { fua: false });
        assert_eq!(reads(&mut checker, &[0; BLOCK as usize]), !grows);
    }
}

/// What was written: before the snapshot, after it, when the volume is rolled back to it.
fn rolled_back_under_clients() -> (Checker, [Vec<u8>; 3], [OpId; 2]) {
    let mut checker = Checker::new(SEED, LATE);
    let (_, first) = written(&mut checker, Kind::Write { fua: false });
    let asked = checker.snapshot_asked();
    let cut = checker.snapshot_answered(asked);
    let (_, second) = written(&mut checker, Kind::Write { fua: false });
    let under_way = checker.begin(Duration::ZERO, Kind::Write { fua: false }, 0, BLOCK);
    let third = checker.data(under_way).to_vec();
    let back = checker.roll_back_asked(Duration::ZERO, cut, &first, BLOCK).unwrap();
    (checker, [first, second, third], [under_way, back])
}

#[test]
fn what_was_acknowledged_before_a_roll_back_is_gone_and_what_is_under_way_may_be_either() {
    for (shown, may_be) in [(0, true), (1, false), (2, true)] {
        let (mut checker, written, [_, back]) = rolled_back_under_clients();
        assert!(reads(&mut checker, &written[1]), "not yet");
        checker.acknowledged(Duration::ZERO, back).unwrap();
        let asked = checker.snapshot_asked();
        let cut = checker.snapshot_answered(asked);
        assert_eq!(checker.judge_snapshot(cut, &written[shown]).is_ok(), may_be, "{shown}");
        assert_eq!(reads(&mut checker, &written[shown]), may_be, "{shown}");
    }
}

#[test]
fn what_is_acknowledged_after_a_roll_back_counts_for_reads_and_snapshots() {
    for (shown, may_be) in [(0, false), (1, false), (2, false), (3, true)] {
        let (mut checker, [first, second, third], [under_way, back]) = rolled_back_under_clients();
        checker.acknowledged(Duration::ZERO, back).unwrap();
        checker.acknowledged(Duration::ZERO, under_way).unwrap();
        let (_, fourth) = written(&mut checker, Kind::Write { fua: false });
        let asked = checker.snapshot_asked();
        let cut = checker.snapshot_answered(asked);
        let shown = [first, second, third, fourth][shown].clone();
        assert_eq!(checker.judge_snapshot(cut, &shown).is_ok(), may_be);
        assert_eq!(reads(&mut checker, &shown), may_be);
    }
}
