//! How a volume differs from a snapshot, as a file: what `volume export --since` writes and `volume import` applies. A whole volume, as
//! `volume export --as tepal` writes it, is what differs from nothing: what no piece is of, are zeros. The bytes are described in
//! `docs/formats.md`.
//!
//! Invariants:
//! 1. Nothing of a piece is given out before its checksums were found right, and each piece belongs to this file and this place
//!    in it.
//! 2. A file that was cut short, or goes on after its end, is known for that: the end is a record of its own.

use std::io::{self, Read, Write};
use tepal_codec::checksum::crc;
use tepal_drive::label;
use tepal_model::ClusterId;
use tepal_model::text::is_name;

/// Begins every such file. No filesystem, partition table or image begins so.
pub const MAGIC: [u8; 8] = *b"TEPALdif";

/// Whether a file begins as one that began so, until something of that was damaged or lost. Hardly any image
/// does, but that of one of Tepal's drives, whose label begins alike: it's told apart.
pub fn begins_as_damaged(beginning: &[u8]) -> bool {
    beginning != label::MAGIC && MAGIC.windows(4).any(|part| beginning.windows(4).any(|found| found == part))
}

/// The longest data of one record.
pub const LONGEST: u64 = 8 << 20;

const FORMAT: u32 = 1;
/// Of a file that is based on nothing.
const WHOLE: u32 = 2;
/// The header without its names and its checksum.
const FIXED: usize = 64;
const LONGEST_HEADER: usize = 4096;
const HEAD: usize = 40;

const DATA: u32 = 1;
const ZEROS: u32 = 2;
const END: u32 = 3;

/// What differs from what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub cluster: ClusterId,
    /// The volume's id there.
    pub volume_id: u64,
    /// The epoch of the snapshot that it's based on.
    pub since_epoch: u32,
    /// That of the snapshot that it leads to; 0 if it was the volume itself.
    pub to_epoch: u32,
    /// Bytes of what it's based on.
    pub since_size: u64,
    /// Bytes of what it leads to.
    pub size: u64,
    /// As it was called then, like the others.
    pub volume: String,
    /// `None` if it's based on nothing: then it's all of a volume.
    pub since: Option<String>,
    /// `None` if it was the volume itself.
    pub to: Option<String>,
}

/// Why a file isn't applied, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum DifferenceError {
    #[error("it can't be read: {0}")]
    Io(io::Error),
    #[error("it is of format {0}, and this version knows up to {WHOLE}: use a newer one")]
    Newer(u32),
    #[error("it was cut short")]
    CutShort,
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

impl From<io::Error> for DifferenceError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => DifferenceError::CutShort,
            _ => DifferenceError::Io(error),
        }
    }
}

impl Header {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &self.format().to_le_bytes(), &[0; 4], &self.cluster.0.to_le_bytes()].concat();
        bytes.extend(self.volume_id.to_le_bytes());
        bytes.extend(self.since_epoch.to_le_bytes());
        bytes.extend(self.to_epoch.to_le_bytes());
        bytes.extend(self.since_size.to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        let [since, to] = [&self.since, &self.to].map(|name| name.as_deref().unwrap_or_default());
        for name in [&self.volume, since, to] {
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        let length = (bytes.len() + 4) as u32;
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        let checksum = crc(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    fn format(&self) -> u32 {
        if self.since.is_some() { FORMAT } else { WHOLE }
    }

    /// With its checksum, by which its records know it.
    fn read(input: &mut impl Read) -> Result<(Header, u32), DifferenceError> {
        let mut bytes = vec![0; 16];
        input.read_exact(&mut bytes)?;
        let [format, length] = [number(&bytes, 8), number(&bytes, 12)];
        if bytes[..8] != MAGIC {
            return Err(DifferenceError::Damaged("it doesn't begin as one of differences"));
        }
        if ![FORMAT, WHOLE].contains(&format) {
            return Err(DifferenceError::Newer(format));
        }
        let length = length as usize;
        if !(FIXED + 6 + 4..=LONGEST_HEADER).contains(&length) {
            return Err(DifferenceError::Damaged("its header"));
        }
        bytes.resize(length, 0);
        input.read_exact(&mut bytes[16..])?;
        let (said, checksum) = bytes.split_at(length - 4);
        let checksum = number(checksum, 0);
        let header = Header::parse(said).filter(|header| crc(said) == checksum && header.format() == format);
        Ok((header.ok_or(DifferenceError::Damaged("its header"))?, checksum))
    }

    fn parse(said: &[u8]) -> Option<Header> {
        let mut rest = &said[FIXED..];
        let mut name = || -> Option<String> {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let (name, after) = after.split_at_checked(u16::from_le_bytes(*length) as usize)?;
            rest = after;
            String::from_utf8(name.to_vec()).ok()
        };
        let (volume, since, to) = (name()?, name()?, name()?);
        let is_right = rest.is_empty()
            && is_name(&volume)
            && [&since, &to].into_iter().all(|name| name.is_empty() || is_name(name));
        is_right.then(|| Header {
            cluster: ClusterId(u128::from_le_bytes(said[16..32].try_into().expect("sixteen bytes"))),
            volume_id: long(said, 32),
            since_epoch: number(said, 40),
            to_epoch: number(said, 44),
            since_size: long(said, 48),
            size: long(said, 56),
            volume,
            since: (!since.is_empty()).then_some(since),
            to: (!to.is_empty()).then_some(to),
        })
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub struct DifferenceWriter<W> {
    output: W,
    header: u32,
    records: u64,
    bytes: u64,
}

impl<W: Write> DifferenceWriter<W> {
    pub fn begin(mut output: W, header: &Header) -> io::Result<Self> {
        let bytes = header.bytes();
        output.write_all(&bytes)?;
        Ok(DifferenceWriter { output, header: number(&bytes, bytes.len() - 4), records: 0, bytes: 0 })
    }

    /// Up to [`LONGEST`] bytes. Pieces ascend.
    pub fn data(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.head(DATA, offset, bytes.len() as u64, crc(bytes))?;
        self.output.write_all(bytes)
    }

    pub fn zeros(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.head(ZEROS, offset, length, 0)
    }

    /// A file without this is no whole one.
    pub fn finish(mut self) -> io::Result<()> {
        self.head(END, self.bytes, 0, 0)?;
        self.output.flush()
    }

    fn head(&mut self, kind: u32, offset: u64, length: u64, checksum: u32) -> io::Result<()> {
        let mut head = [&kind.to_le_bytes()[..], &self.header.to_le_bytes(), &self.records.to_le_bytes()].concat();
        head.extend(offset.to_le_bytes());
        head.extend(length.to_le_bytes());
        head.extend(checksum.to_le_bytes());
        head.extend(crc(&head).to_le_bytes());
        (self.records, self.bytes) = (self.records + 1, self.bytes + length);
        self.output.write_all(&head)
    }
}

/// What stands in one record. The bytes of data are in the buffer that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    Data { offset: u64 },
    Zeros { offset: u64, length: u64 },
}

pub struct DifferenceReader<R> {
    input: R,
    header: Header,
    /// Its checksum.
    checksum: u32,
    records: u64,
    bytes: u64,
    /// Where the last piece ended.
    end: u64,
    /// Something may follow it.
    is_part: bool,
}

impl<R: Read> DifferenceReader<R> {
    /// Of a file that has nothing after its end.
    pub fn open(input: R) -> Result<Self, DifferenceError> {
        Ok(DifferenceReader { is_part: false, ..Self::part(input)? })
    }

    /// Of one of several files in a row.
    pub fn part(mut input: R) -> Result<Self, DifferenceError> {
        let (header, checksum) = Header::read(&mut input)?;
        Ok(DifferenceReader { input, header, checksum, records: 0, bytes: 0, end: 0, is_part: true })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next piece, found right; `None` at the end, which was found to be one. Not to be asked again after that, or an error.
    pub fn next(&mut self, data: &mut Vec<u8>) -> Result<Option<Piece>, DifferenceError> {
        let mut head = [0; HEAD];
        self.input.read_exact(&mut head)?;
        let [kind, header, checksum] = [0, 4, 32].map(|at| number(&head, at));
        let [place, offset, length] = [8, 16, 24].map(|at| long(&head, at));
        let is_right = crc(&head[..HEAD - 4]) == number(&head, HEAD - 4);
        if !is_right || header != self.checksum || place != self.records {
            return Err(DifferenceError::Damaged("a record of it isn't right, or of another file"));
        }
        self.records += 1;
        if kind == END {
            return self.ends(offset).map(|()| None);
        }
        let end = offset.checked_add(length).filter(|end| *end <= self.header.size && offset >= self.end && length > 0);
        self.end = end.ok_or(DifferenceError::Damaged("a record of it has no place in the volume"))?;
        self.bytes += length;
        match kind {
            DATA if length <= LONGEST => {
                data.resize(length as usize, 0);
                self.input.read_exact(data)?;
                match crc(data) == checksum {
                    true => Ok(Some(Piece::Data { offset })),
                    false => Err(DifferenceError::Damaged("data of it doesn't match its checksum")),
                }
            }
            ZEROS => Ok(Some(Piece::Zeros { offset, length })),
            _ => Err(DifferenceError::Damaged("a record of it is of no known kind")),
        }
    }

    fn ends(&mut self, bytes: u64) -> Result<(), DifferenceError> {
        if bytes != self.bytes {
            return Err(DifferenceError::Damaged("not all of it is there"));
        }
        if self.is_part {
            return Ok(());
        }
        match self.input.read_exact(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => Err(DifferenceError::Damaged("it goes on after its end")),
        }
    }

    /// Reads it to its end. How many bytes of a volume it changes.
    pub fn verify(mut self) -> Result<u64, DifferenceError> {
        let mut data = Vec::new();
        while self.next(&mut data)?.is_some() {}
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            cluster: ClusterId(9 << 100),
            volume_id: 7,
            since_epoch: 3,
            to_epoch: 5,
            since_size: 1 << 20,
            size: 2 << 20,
            volume: "v0".into(),
            since: Some("a".into()),
            to: Some("b".into()),
        }
    }

    fn file(header: &Header) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = DifferenceWriter::begin(&mut bytes, header).expect("memory");
        writer.data(4096, &[7; 4096]).expect("memory");
        writer.zeros(8192, 65536).expect("memory");
        writer.data(1 << 20, &[8; 512]).expect("memory");
        writer.finish().expect("memory");
        bytes
    }

    fn pieces(bytes: &[u8]) -> Result<Vec<(Piece, Vec<u8>)>, DifferenceError> {
        let mut reader = DifferenceReader::open(bytes)?;
        let (mut pieces, mut data) = (Vec::new(), Vec::new());
        while let Some(piece) = reader.next(&mut data)? {
            pieces.push((piece, if matches!(piece, Piece::Data { .. }) { data.clone() } else { vec![] }));
        }
        Ok(pieces)
    }

    proptest::proptest! {
        #[test]
        fn hostile_bytes_are_refused_and_take_no_more_memory_than_a_piece(bytes: Vec<u8>, at: usize, with: u64) {
            let mut whole = Vec::new();
            DifferenceWriter::begin(&mut whole, &header()).and_then(|writer| writer.finish()).expect("memory");
            let at = at % (whole.len() - 7);
            let mut changed = whole.clone();
            changed[at..at + 8].copy_from_slice(&with.to_le_bytes());
            for text in [&bytes, &changed] {
                if let Ok(reader) = DifferenceReader::open(&**text) {
                    proptest::prop_assert!(reader.verify().is_err() || *text == whole);
                }
            }
        }
    }

    /// Story: a file of differences of which one bit was flipped at the beginning was written to the volume as an image.
    #[test]
    fn a_beginning_that_was_damaged_is_known() {
        for at in 0..MAGIC.len() {
            let mut damaged = MAGIC;
            damaged[at] ^= 4;
            assert!(begins_as_damaged(&damaged), "byte {at}");
            let is_known = |what: &[u8]| begins_as_damaged(what);
            assert!(at > 3 || is_known(&MAGIC[at..]) && is_known(&MAGIC[..8 - at]), "{at} of it are lost");
        }
        for image in [&b""[..], b"TEP", b"TExALxxx", &[0; 8]] {
            assert!(!begins_as_damaged(image), "{image:?}");
        }
    }

    /// Story: the image of a drive of Tepal, as of a virtual machine that serves one, was refused as damaged differences.
    #[test]
    fn the_image_of_a_drive_is_an_image() {
        assert!(!begins_as_damaged(b"TEPALdrv"));
    }

    #[test]
    fn what_was_written_is_read_back() {
        let whole = Header { since: None, since_epoch: 0, since_size: 0, ..header() };
        for header in [header(), Header { to: None, to_epoch: 0, ..header() }, whole] {
            let bytes = file(&header);
            assert_eq!(DifferenceReader::open(&bytes[..]).expect("whole").header(), &header);
            let expected = [
                (Piece::Data { offset: 4096 }, vec![7; 4096]),
                (Piece::Zeros { offset: 8192, length: 65536 }, vec![]),
                (Piece::Data { offset: 1 << 20 }, vec![8; 512]),
            ];
            assert_eq!(pieces(&bytes).expect("whole"), expected);
            let length = DifferenceReader::open(&bytes[..]).expect("whole").verify().expect("whole");
            assert_eq!(length, 4096 + 65536 + 512);
        }
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_refused() {
        let bytes = file(&header());
        for length in 0..bytes.len() {
            assert!(matches!(pieces(&bytes[..length]), Err(DifferenceError::CutShort)), "{length} bytes");
        }
    }

    #[test]
    fn a_file_with_any_byte_changed_is_refused_and_nothing_wrong_was_given_out() {
        let bytes = file(&header());
        let right = pieces(&bytes).expect("whole");
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x10;
            let Ok(mut reader) = DifferenceReader::open(&wrong[..]) else { continue };
            let (mut data, mut given) = (Vec::new(), 0);
            let ended = loop {
                match reader.next(&mut data) {
                    Ok(Some(piece)) => assert_eq!(piece, right[given].0, "byte {at}"),
                    ended => break ended,
                }
                given += 1;
            };
            assert!(ended.is_err(), "byte {at}");
        }
    }

    #[test]
    fn records_that_are_missing_moved_or_of_another_file_are_noticed() {
        let bytes = file(&header());
        let first = header().bytes().len();
        let second = first + HEAD + 4096;
        let third = second + HEAD;
        let without_second = [&bytes[..second], &bytes[third..]].concat();
        let swapped = [&bytes[..first], &bytes[second..third], &bytes[first..second], &bytes[third..]].concat();
        let other = file(&Header { since_epoch: 2, ..header() });
        let spliced = [&bytes[..second], &other[second..]].concat();
        let longer = [&bytes[..], &[0]].concat();
        let twice = [&bytes[..], &bytes[..]].concat();
        for (wrong, what) in [
            (without_second, "a record is missing"),
            (swapped, "two are exchanged"),
            (spliced, "the rest is of another file"),
            (longer, "something follows"),
            (twice, "another follows"),
        ] {
            assert!(matches!(pieces(&wrong), Err(DifferenceError::Damaged(_))), "{what}");
        }
    }

    #[test]
    fn a_later_format_and_anything_else_is_refused_by_its_first_bytes() {
        let mut later = file(&header());
        later[8] = 3;
        assert!(matches!(pieces(&later), Err(DifferenceError::Newer(3))));
        assert!(matches!(pieces(&[0; 4096]), Err(DifferenceError::Damaged(_))));
        let huge = [&MAGIC[..], &FORMAT.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
        assert!(matches!(pieces(&huge), Err(DifferenceError::Damaged(_))), "no room is made for what it says");
    }
}
