//! HTML from texts that others wrote.

use std::fmt::{self, Display};

use crate::api::syntax::is_deceptive;

/// A text in HTML, as content or in a quoted attribute. Control characters and marks of the direction of writing are left out.
pub(super) struct HtmlText<'a>(pub &'a str);

impl Display for HtmlText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                letter if is_deceptive(letter) && letter != '\n' => {}
                letter => write!(f, "{letter}")?,
            }
        }
        Ok(())
    }
}

/// A value in the query of an address.
pub(super) struct InQuery<'a>(pub &'a str);

impl Display for InQuery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let hostile = "<script>alert('1')</script>\" onload=\"x\u{0}\u{1b}&amp;";
        let text = HtmlText(hostile).to_string();
        assert_eq!(text, "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; onload=&quot;x&amp;amp;");
    }

    #[test]
    fn no_value_leaves_its_parameter() {
        assert_eq!(InQuery("a&b=c#d/é").to_string(), "a%26b%3Dc%23d%2F%C3%A9");
    }
}
