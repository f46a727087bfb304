//! Writes a stream as `rbd` reads it.

use super::{DIFF, DIFF_2, DIFFS, Header, IMAGE, Kind, tag};
use std::io::{self, Write};

/// Of an image that `rbd create` makes without options: objects of 4 MiB, each in one piece.
const ORDER: u64 = 22;
const OBJECT: u64 = 1 << ORDER;
/// layering, exclusive-lock, object-map, fast-diff and deep-flatten.
const FEATURES: u64 = 0b11_1101;

/// Begins an image that has so many parts: one for each snapshot, and one for what the image is now.
pub fn begin_image(to: &mut impl Write, parts: u64) -> io::Result<()> {
    to.write_all(IMAGE)?;
    for (tag, value) in
        [(tag::ORDER, ORDER), (tag::FEATURES, FEATURES), (tag::STRIPE_UNIT, OBJECT), (tag::STRIPE_COUNT, 1)]
    {
        to.write_all(&[tag])?;
        to.write_all(&8u64.to_le_bytes())?;
        to.write_all(&value.to_le_bytes())?;
    }
    to.write_all(&[tag::PROPERTIES_END])?;
    to.write_all(DIFFS)?;
    to.write_all(&parts.to_le_bytes())
}

/// Writes differences: by themselves, or as part of an image.
pub struct DiffWriter<W> {
    output: W,
    of: Kind,
}

impl<W: Write> DiffWriter<W> {
    pub fn begin(mut output: W, of: Kind, header: &Header) -> io::Result<Self> {
        output.write_all(if of == Kind::Image { DIFF_2 } else { DIFF })?;
        let mut writer = DiffWriter { output, of };
        for (tag, name) in [(tag::FROM, &header.since), (tag::TO, &header.to)] {
            let Some(name) = name else { continue };
            writer.head(tag, 4 + name.len() as u64)?;
            writer.output.write_all(&(name.len() as u32).to_le_bytes())?;
            writer.output.write_all(name.as_bytes())?;
        }
        writer.head(tag::SIZE, 8)?;
        writer.output.write_all(&header.size.to_le_bytes())?;
        Ok(writer)
    }

    /// Pieces ascend.
    pub fn data(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.head(tag::WRITE, 16 + bytes.len() as u64)?;
        self.range(offset, bytes.len() as u64)?;
        self.output.write_all(bytes)
    }

    pub fn zeros(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.head(tag::ZERO, 16)?;
        self.range(offset, length)
    }

    /// A stream without this is no whole one.
    pub fn finish(mut self) -> io::Result<()> {
        self.output.write_all(&[tag::END])?;
        self.output.flush()
    }

    fn head(&mut self, tag: u8, length: u64) -> io::Result<()> {
        self.output.write_all(&[tag])?;
        match self.of {
            Kind::Image => self.output.write_all(&length.to_le_bytes()),
            Kind::Diff => Ok(()),
        }
    }

    fn range(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.output.write_all(&offset.to_le_bytes())?;
        self.output.write_all(&length.to_le_bytes())
    }
}
