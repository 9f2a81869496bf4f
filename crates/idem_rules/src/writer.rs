//! A writer that puts a document into canonical form, whatever order its members arrive in.

use crate::canonical::{order, prefix, push_string};
use crate::number;

/// One member of an object that is being written.
struct Member {
    prefix: u64,
    /// Where the name stands in `names`.
    name: (usize, usize),
    /// Where `"name":value` stands in `out`; the end is known when the value is.
    span: (usize, usize),
    /// The caller's mark, returned if the name turns out to be a second one.
    mark: usize,
}

/// An array or object that is open.
struct Open {
    object: bool,
    /// Whether a value or member was written.
    filled: bool,
    /// The first of its members, its first name's place in `names`, and its place in `out`.
    members: usize,
    names: usize,
    start: usize,
}

/// An object whose members arrived out of order: where it stands in `out`, and its spans in order.
struct Unsorted {
    start: usize,
    end: usize,
    spans: (usize, usize),
}

/// Builds canonical text from the parts of a document in the order they come in.
///
/// The members of an object may come in any order. They are written as they come and the order is put
/// right once, at the end, so that each byte moves at most once however deep the document is.
///
/// The caller keeps the calls well-nested: a reader that checked the grammar does.
#[derive(Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
    names: Vec<u8>,
    open: Vec<Open>,
    members: Vec<Member>,
    unsorted: Vec<Unsorted>,
    spans: Vec<(usize, usize)>,
}

impl Writer {
    /// A writer with room for a text of about `capacity` bytes.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Writer { out: Vec::with_capacity(capacity), ..Writer::default() }
    }

    /// The length of the text so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Writes `null`, `true` or `false`.
    pub(crate) fn literal(&mut self, word: &str) {
        self.separate();
        self.out.extend_from_slice(word.as_bytes());
    }

    /// Writes a number; see [`number::push_decimal`].
    pub(crate) fn number(&mut self, negative: bool, digits: &[u8], exponent: i32) {
        self.separate();
        number::push_decimal(&mut self.out, negative, digits, exponent);
    }

    /// Writes a string value.
    pub(crate) fn string(&mut self, text: &str) {
        self.separate();
        push_string(&mut self.out, text.as_bytes());
    }

    /// Opens an array.
    pub(crate) fn begin_array(&mut self) {
        self.begin(false, b'[');
    }

    /// Closes the innermost array.
    pub(crate) fn end_array(&mut self) {
        self.open.pop();
        self.out.push(b']');
    }

    /// Opens an object.
    pub(crate) fn begin_object(&mut self) {
        self.begin(true, b'{');
    }

    /// Writes the name of the next member; its value must follow. `mark` names it to the caller.
    pub(crate) fn name(&mut self, name: &str, mark: usize) {
        if self.end_member() {
            self.out.push(b',');
        } else if let Some(object) = self.open.last_mut() {
            object.filled = true;
        }
        let (start, name_start) = (self.out.len(), self.names.len());
        self.names.extend_from_slice(name.as_bytes());
        push_string(&mut self.out, name.as_bytes());
        self.out.push(b':');
        self.members.push(Member {
            prefix: prefix(name.as_bytes()),
            name: (name_start, self.names.len()),
            span: (start, start),
            mark,
        });
    }

    /// Closes the innermost object; fails with the mark of a member whose name the object had before.
    pub(crate) fn end_object(&mut self) -> std::result::Result<(), usize> {
        self.end_member();
        self.out.push(b'}');
        let Some(object) = self.open.pop() else { return Ok(()) };
        let members = &mut self.members[object.members..];
        let names = &self.names;
        let compare = |a: &Member, b: &Member| {
            let full = || order(&names[a.name.0..a.name.1], &names[b.name.0..b.name.1]);
            a.prefix.cmp(&b.prefix).then_with(full)
        };
        if !members.is_sorted_by(|a, b| compare(a, b).is_lt()) {
            members.sort_unstable_by(compare);
            if let Some(pair) = members.windows(2).find(|pair| compare(&pair[0], &pair[1]).is_eq()) {
                return Err(pair[0].mark.max(pair[1].mark));
            }
            let first = self.spans.len();
            self.spans.extend(members.iter().map(|member| member.span));
            let (end, spans) = (self.out.len(), (first, self.spans.len()));
            self.unsorted.push(Unsorted { start: object.start, end, spans });
        }
        self.members.truncate(object.members);
        self.names.truncate(object.names);
        Ok(())
    }

    /// The canonical text of the document.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if self.unsorted.is_empty() {
            return self.out;
        }
        self.unsorted.sort_unstable_by_key(|object| object.start);
        let mut sorted = Vec::with_capacity(self.out.len());
        // What is still to be written, the last first.
        let mut steps = vec![Step::Copy(0, self.out.len())];
        while let Some(step) = steps.pop() {
            let Step::Copy(from, to) = step else {
                sorted.push(b',');
                continue;
            };
            let next = self.unsorted.partition_point(|object| object.start < from);
            let Some(object) = self.unsorted.get(next).filter(|object| object.start < to) else {
                sorted.extend_from_slice(&self.out[from..to]);
                continue;
            };
            // Up to its opening brace, its members with commas between them, from its closing brace on.
            sorted.extend_from_slice(&self.out[from..=object.start]);
            steps.push(Step::Copy(object.end - 1, to));
            for (at, &(from, to)) in self.spans[object.spans.0..object.spans.1].iter().enumerate().rev() {
                steps.push(Step::Copy(from, to));
                if at > 0 {
                    steps.push(Step::Comma);
                }
            }
        }
        sorted
    }

    fn begin(&mut self, object: bool, bracket: u8) {
        self.separate();
        let (members, names, start) = (self.members.len(), self.names.len(), self.out.len());
        self.open.push(Open { object, filled: false, members, names, start });
        self.out.push(bracket);
    }

    /// Writes the comma before a value in an array.
    fn separate(&mut self) {
        if let Some(array) = self.open.last_mut().filter(|open| !open.object) {
            if array.filled {
                self.out.push(b',');
            }
            array.filled = true;
        }
    }

    /// Ends the member before this place, if the innermost object has one; says whether it has.
    fn end_member(&mut self) -> bool {
        let filled = self.open.last().is_some_and(|object| object.filled);
        if filled && let Some(member) = self.members.last_mut() {
            member.span.1 = self.out.len();
        }
        filled
    }
}

/// A piece of the text in its final order.
enum Step {
    /// A stretch of the text as it came in.
    Copy(usize, usize),
    /// The comma between two members.
    Comma,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_sorted_at_every_level() {
        let mut writer = Writer::with_capacity(0);
        writer.begin_array();
        writer.begin_object();
        for name in ["z", "b", "a"] {
            writer.name(name, 0);
            writer.begin_object();
            for name in ["y", "x"] {
                writer.name(name, 0);
                writer.begin_array();
                writer.literal("true");
                writer.string(name);
                writer.end_array();
            }
            writer.end_object().unwrap();
        }
        writer.end_object().unwrap();
        writer.number(true, b"15", -1);
        writer.begin_object();
        writer.end_object().unwrap();
        writer.end_array();
        let inner = r#"{"x":[true,"x"],"y":[true,"y"]}"#;
        let expected = format!(r#"[{{"a":{inner},"b":{inner},"z":{inner}}},-1.5,{{}}]"#);
        assert_eq!(String::from_utf8(writer.finish()).unwrap(), expected);
    }

    #[test]
    fn a_second_name_is_found_by_its_mark() {
        for names in [["a", "b", "a"], ["b", "a", "a"], ["long name!", "long name", "long name!"]] {
            let mut writer = Writer::with_capacity(0);
            writer.begin_object();
            for (mark, name) in names.iter().enumerate() {
                writer.name(name, mark);
                writer.literal("null");
            }
            assert_eq!(writer.end_object(), Err(2));
        }
    }
}
