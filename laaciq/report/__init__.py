"""Results for people: HTML pages that work offline, Markdown, the model card, and the sentences that they share."""
