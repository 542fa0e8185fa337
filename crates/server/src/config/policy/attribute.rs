//! Attributes as a file names them. Any word without a dot is a name of the author's own, so one that looks like a
//! slip of the finger is refused: a condition on `adress` would never hold, and nobody would be told.

use tollgate::core::attributes::Attribute;
use tollgate::core::policy::KeyTemplate;

use super::super::section::clip;

/// The attributes that have no dot.
const KNOWN: [&str; 5] = ["method", "path", "host", "address", "token"];

/// What others call them.
const ELSEWHERE: [(&str, &str); 14] = [
    ("verb", "method"),
    ("uri", "path"),
    ("url", "path"),
    ("hostname", "host"),
    ("ip_address", "address"),
    ("ipaddress", "address"),
    ("client_ip", "address"),
    ("remote_ip", "address"),
    ("remote_addr", "address"),
    ("header", "header.NAME"),
    ("query", "query.NAME"),
    ("cookie", "cookie.NAME"),
    ("claim", "claim.NAME"),
    ("descriptor", "descriptor.NAME"),
];

/// Reads an attribute, as [`Attribute::parse`] does, and refuses what is almost one.
pub(super) fn read(text: &str) -> Result<Attribute, String> {
    let attribute = Attribute::parse(text).map_err(|error| error.to_string())?;
    meant(&attribute)?;
    Ok(attribute)
}

/// Reads an attribute whose text is looked at: to pick a plan by, or a cost.
pub(super) fn read_text(text: &str) -> Result<Attribute, String> {
    match read(text)? {
        Attribute::Address => {
            Err("`address` cannot be used here: look at it in `when`, `allow`, `deny` or a key".to_owned())
        }
        Attribute::Parameter(_) => {
            Err(format!("`{}` cannot be used here: only the rule's key knows it", clip(text)))
        }
        attribute => Ok(attribute),
    }
}

/// Reads a key template.
pub(super) fn template(text: &str) -> Result<KeyTemplate, String> {
    let template = KeyTemplate::parse(text).map_err(|error| error.to_string())?;
    template.attributes().try_for_each(meant)?;
    Ok(template)
}

/// Whether a name is the author's own, and not almost another.
fn meant(attribute: &Attribute) -> Result<(), String> {
    let Attribute::Free(name) = attribute else { return Ok(()) };
    let small = name.to_ascii_lowercase();
    let elsewhere =
        ELSEWHERE.iter().find(|(theirs, _)| small == theirs.replace('_', "-") || small == *theirs);
    let ours = elsewhere.map(|(_, ours)| *ours).or_else(|| {
        if small == "ip" { Some("address") } else { KNOWN.into_iter().find(|known| is_slip(&small, known)) }
    });
    match ours {
        Some(ours) => Err(format!("\"{}\" is no attribute: did you mean {ours}?", clip(name))),
        None => Ok(()),
    }
}

/// Whether one letter too many, too few, another or two swapped are all that is between two words. Short words
/// are close to many others (cost, host), so those begin alike.
fn is_slip(written: &str, meant: &str) -> bool {
    let (mut ours, mut theirs): (Vec<char>, Vec<char>) = (written.chars().collect(), meant.chars().collect());
    if theirs.len() < 5 && ours.first() != theirs.first() {
        return false;
    }
    for _ in 0..2 {
        while ours.last().is_some_and(|last| theirs.last() == Some(last)) {
            ours.pop();
            theirs.pop();
        }
        ours.reverse();
        theirs.reverse();
    }
    match (ours.as_slice(), theirs.as_slice()) {
        ([] | [_], [] | [_]) => true,
        ([a, b], [c, d]) => a == d && b == c,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn almost_an_attribute_is_no_attribute() {
        for (written, meant) in [
            ("adress", "address"),
            ("addres", "address"),
            ("addresss", "address"),
            ("Address", "address"),
            ("IP", "address"),
            ("ip_address", "address"),
            ("client-ip", "address"),
            ("Method", "method"),
            ("mehtod", "method"),
            ("Path", "path"),
            ("pth", "path"),
            ("paths", "path"),
            ("uri", "path"),
            ("hsot", "host"),
            ("tokens", "token"),
            ("header", "header.NAME"),
        ] {
            let why = read(written).unwrap_err();
            assert!(why.ends_with(&format!("did you mean {meant}?")), "{written}: {why}");
            assert!(template(&format!("{{{written}}}")).is_err(), "{written}");
        }
        for own in
            ["tier", "tenant", "cost", "post", "math", "account", "plan", "user", "zip", "region", "id"]
        {
            assert!(read(own).is_ok(), "{own}");
        }
        for (text, is_text) in [("address", false), ("ip", false), ("path.user", false), ("path", true)] {
            assert_eq!(read_text(text).is_ok(), is_text, "{text}");
        }
    }
}
