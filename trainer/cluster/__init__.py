"""Runs on a Ray cluster: `ludus train --cluster`. Nothing else imports ray."""
