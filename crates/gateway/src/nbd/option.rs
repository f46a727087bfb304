//! The data of a client's options, taken apart (specification, "Option types"). Pure; every length that the client states is
//! checked against what is there.

use super::wire::MAX_STRING;

/// The data of an option isn't what the option's description says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the option's data is shorter than it says")]
    Short,
    #[error("data follows the end of the option")]
    Trailing,
    #[error("a string of {0} bytes is longer than the protocol's 4096")]
    LongString(usize),
    #[error("a string is not UTF-8 without NUL")]
    NotText,
}

/// The data of INFO and GO.
#[derive(Debug, PartialEq, Eq)]
pub struct ExportRequest<'a> {
    pub name: &'a str,
    /// Kinds of information asked for, known and unknown.
    pub wanted: Vec<u16>,
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Debug, PartialEq, Eq)]
pub struct ContextRequest<'a> {
    pub name: &'a str,
    pub queries: Vec<&'a str>,
}

impl<'a> ExportRequest<'a> {
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = fields.u16()?;
        let wanted = (0..count).map(|_| fields.u16()).collect::<Result<_, _>>()?;
        fields.end()?;
        Ok(ExportRequest { name, wanted })
    }
}

impl<'a> ContextRequest<'a> {
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = fields.u32()?;
        let mut queries = Vec::new();
        for _ in 0..count {
            queries.push(fields.string()?); // ends with the data, whatever the count says
        }
        fields.end()?;
        Ok(ContextRequest { name, queries })
    }

    /// Whether this selects `base:allocation`. The wildcard forms only list.
    pub fn selects_allocation(&self) -> bool {
        self.queries.contains(&"base:allocation")
    }

    pub fn lists_allocation(&self) -> bool {
        self.queries.is_empty() || self.queries.contains(&"base:") || self.selects_allocation()
    }
}

/// The name of an export, as it stands alone in EXPORT_NAME.
pub fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.len() > MAX_STRING {
        return Err(Malformed::LongString(bytes.len()));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(Malformed::NotText),
    }
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (these, rest) = self.0.split_at_checked(count).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(these)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(self.bytes(2)?.iter().fold(0, |number, &byte| number << 8 | u16::from(byte)))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(self.bytes(4)?.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    }

    fn string(&mut self) -> Result<&'a str, Malformed> {
        let length = self.u32()? as usize;
        text(self.bytes(length)?)
    }

    fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn context(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
        let mut data = [&(name.len() as u32).to_be_bytes(), name, &(queries.len() as u32).to_be_bytes()].concat();
        for query in queries {
            data.extend_from_slice(&(query.len() as u32).to_be_bytes());
            data.extend_from_slice(query);
        }
        data
    }

    #[test]
    fn every_cut_and_every_extra_byte_is_noticed() {
        let export = b"\0\0\0\x02v0\0\x02\0\x01\0\x03";
        assert_eq!(ExportRequest::parse(export), Ok(ExportRequest { name: "v0", wanted: vec![1, 3] }));
        for cut in 0..export.len() {
            assert_eq!(ExportRequest::parse(&export[..cut]), Err(Malformed::Short));
        }
        assert_eq!(ExportRequest::parse(&[&export[..], b"x"].concat()), Err(Malformed::Trailing));

        let contexts = context(b"v0", &[b"base:allocation", b"x:y"]);
        let parsed = ContextRequest { name: "v0", queries: vec!["base:allocation", "x:y"] };
        assert_eq!(ContextRequest::parse(&contexts), Ok(parsed));
        for cut in 0..contexts.len() {
            assert_eq!(ContextRequest::parse(&contexts[..cut]), Err(Malformed::Short));
        }
        assert_eq!(ContextRequest::parse(&[&contexts[..], b"x"].concat()), Err(Malformed::Trailing));
    }

    #[test]
    fn lengths_that_lie_take_no_memory() {
        assert_eq!(ExportRequest::parse(b"\xff\xff\xff\xffv0\0\0"), Err(Malformed::Short));
        assert_eq!(ExportRequest::parse(b"\0\0\0\x02v0\xff\xff"), Err(Malformed::Short));
        assert_eq!(ContextRequest::parse(b"\0\0\0\x02v0\xff\xff\xff\xff"), Err(Malformed::Short));
        let long = context(&[b'a'; 4097], &[]);
        assert_eq!(ContextRequest::parse(&long), Err(Malformed::LongString(4097)));
    }

    #[test]
    fn names_are_text() {
        for bytes in [&b"\xff\xfe"[..], b"v\x000", b"\xc3"] {
            assert_eq!(text(bytes), Err(Malformed::NotText));
        }
        assert_eq!(text("größe".as_bytes()), Ok("größe"));
    }

    #[test]
    fn queries_select_and_list_as_the_specification_says() {
        for (queries, selects, lists) in [
            (&[][..], false, true),
            (&[&b"base:allocation"[..]], true, true),
            (&[b"base:"], false, true),
            (&[b"base:other"], false, false),
            (&[b"qemu:dirty-bitmap:", b"x-y"], false, false),
            (&[b"nonsense", b"base:allocation"], true, true),
        ] {
            let data = context(b"v0", queries);
            let request = ContextRequest::parse(&data).unwrap();
            assert_eq!((request.selects_allocation(), request.lists_allocation()), (selects, lists), "{queries:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ExportRequest::parse(&data);
            let _ = ContextRequest::parse(&data);
        }
    }
}
