"""Writes a tokenizer of single bytes, which needs no download. Usage: tokenizer.py FOLDER"""
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

symbols = ["<s>", "</s>"] + sorted(pre_tokenizers.ByteLevel.alphabet())
plain = Tokenizer(models.BPE({s: i for i, s in enumerate(symbols)}, []))
plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
plain.decoder = decoders.ByteLevel()
whole = PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="</s>", model_max_length=8192)
whole.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
whole.save_pretrained(sys.argv[1])
