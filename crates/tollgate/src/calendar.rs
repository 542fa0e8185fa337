//! Days, weeks and months as people in a time zone live them.
//!
//! Neither the core nor Lua knows time zones. This does, and hands them three windows in a row by
//! their boundaries; whoever decides picks the one its own clock is in.

use std::fmt;

use arc_swap::ArcSwapOption;
use jiff::civil::{DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use tollgate_core::algorithm::Calendar;
use tollgate_core::algorithm::fixed_window::Bounds;
use tollgate_core::units::Micros;

use std::sync::Arc;

/// The length of a calendar window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// Midnight to midnight.
    Day,
    /// Monday to Monday.
    Week,
    /// The first to the first.
    Month,
}

/// A calendar in a time zone.
pub struct ZonedCalendar {
    unit: CalendarUnit,
    zone: TimeZone,
    name: String,
    /// The last answer: it stays right for the length of a window, and looking it up again costs
    /// a hundred times a comparison.
    recent: ArcSwapOption<Bounds>,
}

/// The time zone is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone \"{name}\": use an IANA name such as Europe/Berlin, or UTC")]
pub struct UnknownZone {
    /// What was written.
    pub name: String,
}

/// The names of all time zones that are known here, in order.
pub fn zones() -> Vec<String> {
    let mut names: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
    names.sort_unstable();
    names
}

impl ZonedCalendar {
    /// Windows of one `unit` in the zone of that IANA name.
    pub fn try_new(unit: CalendarUnit, zone: &str) -> Result<ZonedCalendar, UnknownZone> {
        let unknown = || UnknownZone { name: zone.chars().take(64).collect() };
        let zone_found = TimeZone::get(zone).map_err(|_| unknown())?;
        let unit_name = match unit {
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
        };
        let name = format!("{unit_name} in {}", zone_found.iana_name().unwrap_or("UTC"));
        Ok(ZonedCalendar { unit, zone: zone_found, name, recent: ArcSwapOption::empty() })
    }

    /// The first instant of the window that holds `date`, moved by whole windows.
    fn start(&self, date: DateTime, windows: i32) -> Option<Micros> {
        let day = date.date();
        let (first, step) = match self.unit {
            CalendarUnit::Day => (day, windows.days()),
            CalendarUnit::Week => {
                let since_monday = i32::from(day.weekday().since(Weekday::Monday));
                (day.checked_sub(since_monday.days()).ok()?, windows.weeks())
            }
            CalendarUnit::Month => (day.first_of_month(), windows.months()),
        };
        let zoned = first.checked_add(step).ok()?.to_zoned(self.zone.clone()).ok()?;
        u64::try_from(zoned.timestamp().as_microsecond()).ok().map(Micros)
    }

    fn bounds(&self, now: Micros) -> Option<Bounds> {
        let instant = Timestamp::from_microsecond(i64::try_from(now.0).ok()?).ok()?;
        let date = self.zone.to_datetime(instant);
        Some(Bounds {
            previous: self.start(date, -1)?,
            current: self.start(date, 0)?,
            next: self.start(date, 1)?,
            end: self.start(date, 2)?,
        })
    }
}

impl Calendar for ZonedCalendar {
    fn usual_length(&self) -> Micros {
        Micros::from_secs(match self.unit {
            CalendarUnit::Day => 86_400,
            CalendarUnit::Week => 7 * 86_400,
            CalendarUnit::Month => 31 * 86_400,
        })
    }

    fn around(&self, now: Micros) -> Bounds {
        if let Some(recent) = &*self.recent.load()
            && recent.current <= now
            && now < recent.next
        {
            return **recent;
        }
        // Outside the years 1970 to 9999 there is no calendar; one endless window holds the limit.
        let bounds = self.bounds(now).unwrap_or(Bounds {
            previous: Micros::ZERO,
            current: Micros::ZERO,
            next: Micros(tollgate_core::units::EXACT_MAX),
            end: Micros(tollgate_core::units::EXACT_MAX),
        });
        self.recent.store(Some(Arc::new(bounds)));
        bounds
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for ZonedCalendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Micros {
        let instant: Timestamp = text.parse().unwrap();
        Micros(u64::try_from(instant.as_microsecond()).unwrap())
    }

    #[test]
    fn windows_follow_the_zone_through_clock_changes_and_leap_years() {
        for (unit, zone, now, current, next) in [
            (
                CalendarUnit::Day,
                "UTC",
                "2026-11-15T12:00:00Z",
                "2026-11-15T00:00:00Z",
                "2026-11-16T00:00:00Z",
            ),
            // The day the clock goes forward in Berlin has 23 hours.
            (
                CalendarUnit::Day,
                "Europe/Berlin",
                "2026-03-29T12:00:00Z",
                "2026-03-28T23:00:00Z",
                "2026-03-29T22:00:00Z",
            ),
            (
                CalendarUnit::Week,
                "UTC",
                "2026-11-15T23:59:59Z",
                "2026-11-09T00:00:00Z",
                "2026-11-16T00:00:00Z",
            ),
            (
                CalendarUnit::Month,
                "America/New_York",
                "2028-02-29T12:00:00Z",
                "2028-02-01T05:00:00Z",
                "2028-03-01T05:00:00Z",
            ),
            (
                CalendarUnit::Month,
                "UTC",
                "2026-12-31T23:59:59.999999Z",
                "2026-12-01T00:00:00Z",
                "2027-01-01T00:00:00Z",
            ),
        ] {
            let calendar = ZonedCalendar::try_new(unit, zone).unwrap();
            let bounds = calendar.around(at(now));
            assert_eq!((bounds.current, bounds.next), (at(current), at(next)), "{calendar:?} at {now}");
            assert!(bounds.previous < bounds.current && bounds.next < bounds.end);
            // What was remembered does not outlive its window.
            assert_eq!(calendar.around(bounds.next).current, bounds.next);
        }
    }

    #[test]
    fn an_unknown_zone_is_named() {
        let error = ZonedCalendar::try_new(CalendarUnit::Day, "Mars/Olympus").unwrap_err();
        assert!(error.to_string().contains("Mars/Olympus"), "{error}");
    }
}
