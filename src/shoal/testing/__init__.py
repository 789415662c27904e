"""What tests of shoal, and of code that uses it, need: tiny models and their tokenizer."""
