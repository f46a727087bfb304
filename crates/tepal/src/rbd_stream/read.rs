//! Reads a stream, from its beginning to its end.

use super::{BEGINNING, DIFF, DIFF_2, DIFFS, Header, IMAGE, Kind, LONGEST, SECTOR, StreamError, tag};
use crate::difference_file::Piece;
use std::io::{self, Read};
use tepal_model::MAX_VOLUME;
use tepal_model::text::is_name;

/// A volume has no more snapshots; an image has one part for each, and one for what it is now.
pub(super) const MOST_SNAPSHOTS: u64 = 1024;
/// The longest name that `rbd` reads.
const LONGEST_NAME: u64 = 4096;

/// What is read, and how much of it was.
struct Bytes<R> {
    input: R,
    at: u64,
}

impl<R: Read> Bytes<R> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), StreamError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => return Err(StreamError::CutShort { at: self.at }),
                Ok(more) => (filled, self.at) = (filled + more, self.at + more as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StreamError::Io { at: self.at, error }),
            }
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, StreamError> {
        let mut byte = [0];
        self.fill(&mut byte)?;
        Ok(byte[0])
    }

    fn short(&mut self) -> Result<u32, StreamError> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn long(&mut self) -> Result<u64, StreamError> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// These bytes, and no others.
    fn expect(&mut self, wanted: &[u8], what: &'static str) -> Result<(), StreamError> {
        let (at, mut found) = (self.at, vec![0; wanted.len()]);
        self.fill(&mut found)?;
        if found == wanted { Ok(()) } else { Err(StreamError::Wrong { at, what }) }
    }

    fn pass(&mut self, length: u64) -> Result<(), StreamError> {
        let (mut left, mut some) = (length, [0; 4096]);
        while left > 0 {
            let length = left.min(some.len() as u64);
            self.fill(&mut some[..length as usize])?;
            left -= length;
        }
        Ok(())
    }

    fn ends(&mut self) -> Result<(), StreamError> {
        let at = self.at;
        match self.byte() {
            Err(StreamError::CutShort { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(StreamError::GoesOn { at }),
        }
    }
}

/// Whether records say how long they are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where the reader is in a stream's current part.
enum Place {
    /// Before the next part, or behind the last one.
    Between,
    /// Behind the tag of a record, which was read at this byte.
    Record { at: u64, tag: u8 },
    /// Within data, of which so much is left, for this place in the image.
    Data { offset: u64, left: u64 },
    /// All records were read.
    Tail,
}

pub struct StreamReader<R> {
    input: Bytes<R>,
    kind: Kind,
    /// Parts of it, and those that were begun.
    parts: u64,
    begun: u64,
    version: Version,
    header: Header,
    /// Bytes of the image as the current part leaves it, which needn't be whole sectors.
    size: u64,
    /// Where the last record ended.
    end: u64,
    place: Place,
}

impl<R: Read> StreamReader<R> {
    pub fn open(input: R) -> Result<Self, StreamError> {
        let mut input = Bytes { input, at: 0 };
        let mut beginning = vec![0; DIFF.len()];
        input.fill(&mut beginning)?;
        let (kind, version, parts) = match &beginning[..] {
            DIFF => (Kind::Diff, Version::One, 1),
            DIFF_2 => (Kind::Diff, Version::Two, 1),
            image if image == &IMAGE[..image.len()] => {
                input.expect(&IMAGE[image.len()..BEGINNING], "it doesn't begin as `rbd` begins a stream")?;
                (Kind::Image, Version::Two, properties(&mut input)?)
            }
            _ => return Err(StreamError::Wrong { at: 0, what: "it doesn't begin as `rbd` begins a stream" }),
        };
        let header = Header { since: None, to: None, size: 0 };
        Ok(StreamReader { input, kind, parts, begun: 0, version, header, size: 0, end: 0, place: Place::Between })
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of the stream that were read.
    pub fn at(&self) -> u64 {
        self.input.at
    }

    /// The next part, once all of the one before it was read. `None` after the last one.
    pub fn part(&mut self) -> Result<Option<Header>, StreamError> {
        assert!(matches!(self.place, Place::Between), "a part is read to its end");
        if self.begun == self.parts {
            return Ok(None);
        }
        if self.kind == Kind::Image {
            self.input.expect(DIFF_2, "differences should begin here")?;
        }
        let at = self.input.at;
        let before = (self.begun > 0).then(|| self.header.to.clone());
        let header = self.header()?;
        let wrong = |what| Err(StreamError::Wrong { at, what });
        match before {
            Some(before) if before != header.since => {
                return wrong("differences aren't based on the snapshot that the ones before lead to");
            }
            None if self.kind == Kind::Image && header.since.is_some() => {
                return wrong("the first differences of an image are based on a snapshot");
            }
            _ => {}
        }
        self.begun += 1;
        if self.begun < self.parts && header.to.is_none() {
            return wrong("differences don't lead to a snapshot, and others follow");
        }
        (self.end, self.header) = (0, header.clone());
        Ok(Some(header))
    }

    /// Up to the first record that isn't of the header.
    fn header(&mut self) -> Result<Header, StreamError> {
        let (mut since, mut to, mut size, mut protection) = (None, None, None, None);
        let begins = self.input.at;
        loop {
            let at = self.input.at;
            let found = self.input.byte()?;
            let is_new = match found {
                tag::FROM => since.replace(self.name()?).is_none(),
                tag::TO => to.replace(self.name()?).is_none(),
                tag::SIZE => {
                    self.said(at, |said| said == 8)?;
                    size.replace(self.input.long()?).is_none()
                }
                // Some versions of `rbd` say that it has eight bytes. It has one.
                tag::PROTECTION if self.version == Version::Two => {
                    self.said(at, |said| said == 8 || said == 1)?;
                    protection.replace(self.input.byte()?).is_none()
                }
                tag::WRITE | tag::ZERO | tag::END => {
                    self.place = Place::Record { at, tag: found };
                    break;
                }
                _ => return Err(StreamError::Tag { at, tag: found }),
            };
            if !is_new {
                return Err(StreamError::Wrong { at, what: "it says once more what it has said" });
            }
        }
        let Some(said) = size else {
            return Err(StreamError::Wrong { at: begins, what: "it doesn't say how large the image is" });
        };
        if said == 0 || said > MAX_VOLUME {
            return Err(StreamError::Size { at: begins, size: said });
        }
        self.size = said;
        Ok(Header { since, to, size: said.next_multiple_of(SECTOR) })
    }

    /// What a record of version 2 says of its length.
    fn said(&mut self, at: u64, is_right: impl FnOnce(u64) -> bool) -> Result<(), StreamError> {
        if self.version == Version::Two && !is_right(self.input.long()?) {
            return Err(StreamError::Wrong { at, what: "a record has another length than one of its kind" });
        }
        Ok(())
    }

    fn name(&mut self) -> Result<String, StreamError> {
        let at = self.input.at - 1;
        let said = if self.version == Version::Two { Some(self.input.long()?) } else { None };
        let length = u64::from(self.input.short()?);
        if length > LONGEST_NAME || said.is_some_and(|said| said != length + 4) {
            return Err(StreamError::Wrong { at, what: "the name of a snapshot has no such length" });
        }
        let mut name = vec![0; length as usize];
        self.input.fill(&mut name)?;
        let name = String::from_utf8_lossy(&name).replace(|c: char| c.is_control(), "?");
        if is_name(&name) { Ok(name) } else { Err(StreamError::Name { at, name }) }
    }

    /// The next piece of a part. `None` at its end; of the last part only if the stream ends there too.
    pub fn next(&mut self, data: &mut Vec<u8>) -> Result<Option<Piece>, StreamError> {
        loop {
            match self.place {
                Place::Between => return Ok(None),
                Place::Data { left: 0, .. } => {
                    let at = self.input.at;
                    self.place = Place::Record { at, tag: self.input.byte()? };
                }
                Place::Data { offset, left } => {
                    data.resize(left.min(LONGEST) as usize, 0);
                    self.input.fill(data)?;
                    let length = data.len() as u64;
                    self.place = Place::Data { offset: offset + length, left: left - length };
                    return Ok(Some(Piece::Data { offset }));
                }
                Place::Record { at, tag: tag::WRITE } => {
                    let (offset, length) = self.range(at, 16)?;
                    self.place = Place::Data { offset, left: length };
                }
                Place::Record { at, tag: tag::ZERO } => {
                    let (offset, length) = self.range(at, 0)?;
                    self.place = Place::Data { offset, left: 0 };
                    return Ok(Some(Piece::Zeros { offset, length }));
                }
                Place::Record { tag: tag::END, .. } => {
                    if self.begun == self.parts {
                        self.input.ends()?;
                    }
                    self.place = Place::Tail;
                }
                Place::Record { at, tag } => return Err(StreamError::Tag { at, tag }),
                Place::Tail => {
                    self.place = Place::Between;
                    // What a volume has past the end of an image that isn't whole sectors. An image that grows again has zeros there.
                    let (offset, length) = (self.size, self.header.size - self.size);
                    if length > 0 {
                        return Ok(Some(Piece::Zeros { offset, length }));
                    }
                }
            }
        }
    }

    /// Of a record of data or zeros. `with_data`: what its length has besides the data, 0 if that has none.
    fn range(&mut self, at: u64, with_data: u64) -> Result<(u64, u64), StreamError> {
        let said = if self.version == Version::Two { Some(self.input.long()?) } else { None };
        let (offset, length) = (self.input.long()?, self.input.long()?);
        let size = self.size;
        let end = offset.checked_add(length).filter(|end| *end <= size);
        let end = end.ok_or(StreamError::PastEnd { at, offset, length, size })?;
        // Within the image, so that nothing overflows.
        let wanted = if with_data > 0 { with_data + length } else { 16 };
        if length == 0 || said.is_some_and(|said| said != wanted) {
            return Err(StreamError::Wrong { at, what: "a record has another length than one of its kind" });
        }
        if offset < self.end {
            return Err(StreamError::Order { at, offset, end: self.end });
        }
        self.end = end;
        Ok((offset, length))
    }
}

/// What is said of an image isn't content: all of it is passed over. How many parts follow.
fn properties(input: &mut Bytes<impl Read>) -> Result<u64, StreamError> {
    loop {
        match input.byte()? {
            tag::PROPERTIES_END => break,
            _ => {
                let length = input.long()?;
                input.pass(length)?;
            }
        }
    }
    input.expect(DIFFS, "the differences of the image should begin here")?;
    let at = input.at;
    match input.long()? {
        0 => Err(StreamError::Wrong { at, what: "it has nothing of the image" }),
        parts if parts > MOST_SNAPSHOTS + 1 => Err(StreamError::Parts { at, parts, most: MOST_SNAPSHOTS }),
        parts => Ok(parts),
    }
}
