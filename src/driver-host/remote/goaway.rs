//! Notices that a driver closes a connection because it gets pings more often than it permits. The client of gRPC does not tell:
//! calls in flight only see that their connection breaks.

const HEADER: usize = 9;
const GOAWAY: u8 = 7;
/// Last stream and error code of a GOAWAY.
const BODY: usize = 8;
const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 0xb];

/// Follows the frames of HTTP/2 that come from a driver.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    /// The beginning of a frame, as far as it came.
    head: Vec<u8>,
    /// Bytes to skip of a frame that does not matter.
    rest: usize,
}

impl FrameReader {
    /// Takes the next bytes. Whether a GOAWAY with ENHANCE_YOUR_CALM ends in them.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> bool {
        let mut is_refused = false;
        while !bytes.is_empty() {
            let skipped = self.rest.min(bytes.len());
            self.rest -= skipped;
            let taken = self.missing().min(bytes.len() - skipped);
            self.head.extend(&bytes[skipped..skipped + taken]);
            bytes = &bytes[skipped + taken..];
            if self.rest == 0 && self.missing() == 0 {
                is_refused |= self.head.ends_with(&ENHANCE_YOUR_CALM) && self.head.len() == HEADER + BODY;
                self.rest = self.length().saturating_sub(self.head.len() - HEADER);
                self.head.clear();
            }
        }
        is_refused
    }

    /// How many bytes of the beginning are still to come.
    fn missing(&self) -> usize {
        let is_goaway = self.head.get(3) == Some(&GOAWAY) && self.length() >= BODY;
        let wanted = if is_goaway { HEADER + BODY } else { HEADER };
        wanted.saturating_sub(self.head.len())
    }

    /// The length of the frame after its header.
    fn length(&self) -> usize {
        match self.head.as_slice() {
            [a, b, c, ..] => usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
    }

    fn goaway(code: u8) -> Vec<u8> {
        frame(GOAWAY, &[&[0, 0, 0, 1, 0, 0, 0, code][..], b"too_many_pings"].concat())
    }

    #[rstest]
    #[case::pings(goaway(0xb), true)]
    #[case::stops(goaway(0), false)]
    #[case::data(frame(0, &goaway(0xb)), false)]
    #[case::too_short(frame(GOAWAY, &[0, 0, 0, 0xb]), false)]
    #[case::settings(frame(4, &[]), false)]
    fn only_a_goaway_for_too_many_pings_counts_however_it_is_cut(#[case] one: Vec<u8>, #[case] expected: bool) {
        let bytes = [frame(4, &[]), frame(0, &[7; 300]), one, frame(6, &[0; 8])].concat();
        for size in [1, 2, 5, 9, 10, 17, 64, bytes.len()] {
            let mut frames = FrameReader::default();
            let found = bytes.chunks(size).filter(|chunk| frames.take(chunk)).count();
            assert_eq!(found, usize::from(expected), "in pieces of {size}");
        }
    }
}
